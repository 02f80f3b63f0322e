//! Peers written in Rust, behind a C interface that Python's `ctypes` calls.
//!
//! A peer decodes the payloads of one `Task` to record batches, as often as it is asked to.
//! `peer_run` drops each batch, so a run takes no memory for rows that nobody reads.

use std::cell::RefCell;
use std::error::Error;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::slice;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::Schema;
use arrow_schema::ffi::FFI_ArrowSchema;
use mimalloc::MiMalloc;

mod avro;
mod json;
mod orders;
mod protobuf;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

pub type Failure = Box<dyn Error + Send + Sync>;

/// Decodes the same payloads each time.
pub trait Peer {
    fn decode(&mut self, sink: &mut dyn FnMut(RecordBatch)) -> Result<(), Failure>;
}

/// What to decode. The caller keeps all memory until the peer is closed.
#[repr(C)]
pub struct Task {
    /// Name of the peer.
    peer: *const c_char,
    data: *const u8,
    data_bytes: usize,
    /// Start of each payload in `data`, shifted left by 32, and its length in bytes.
    positions: *const i64,
    count: usize,
    /// Rows of a record batch.
    rows: usize,
    /// Avro schema as JSON text, or a protobuf `FileDescriptorSet`; empty for JSON.
    definition: *const u8,
    definition_bytes: usize,
    /// Full name of the protobuf message; empty otherwise.
    root: *const c_char,
    /// Schema of the record batches of JSON; null otherwise. It is only read.
    schema: *const FFI_ArrowSchema,
}

/// The same in Rust's terms.
pub struct Input {
    pub data: &'static [u8],
    pub positions: &'static [i64],
    pub rows: usize,
    pub definition: &'static [u8],
    pub root: &'static str,
    pub schema: Option<Schema>,
}

impl Input {
    /// Safety: the memory of `task` outlives the input.
    unsafe fn new(task: &Task) -> Result<Self, Failure> {
        unsafe {
            Ok(Input {
                data: slice::from_raw_parts(task.data, task.data_bytes),
                positions: slice::from_raw_parts(task.positions, task.count),
                rows: task.rows,
                definition: slice::from_raw_parts(task.definition, task.definition_bytes),
                root: CStr::from_ptr(task.root).to_str()?,
                schema: task.schema.as_ref().map(Schema::try_from).transpose()?,
            })
        }
    }

    pub fn payload(&self, position: i64) -> &'static [u8] {
        let start = (position >> 32) as usize;
        &self.data[start..start + (position & 0xFFFF_FFFF) as usize]
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

fn fail(error: &Failure) {
    let text = error.to_string().replace('\0', " ");
    LAST_ERROR.set(CString::new(text).unwrap_or_default());
}

fn open(task: &Task) -> Result<Box<dyn Peer>, Failure> {
    let (name, input) = unsafe { (CStr::from_ptr(task.peer).to_str()?, Input::new(task)?) };
    Ok(match name {
        "arrow-json" => Box::new(json::ArrowJson::new(input)?),
        "sonic-rs" => Box::new(orders::SonicRs::new(input)),
        "simd-json" => Box::new(orders::SimdJson::new(input)),
        "arrow-avro file" => Box::new(avro::Files::new(input)?),
        "arrow-avro datums" => Box::new(avro::Datums::new(input)?),
        "ptars" => Box::new(protobuf::Ptars::new(input)?),
        _ => return Err(format!("no peer is named {name}").into()),
    })
}

/// Returns the text of the last error of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn peer_error() -> *const c_char {
    LAST_ERROR.with_borrow(|text| text.as_ptr())
}

/// Returns a peer, or null after an error.
///
/// # Safety
/// The memory of `task` must outlive the peer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peer_open(task: *const Task) -> *mut Box<dyn Peer> {
    match open(unsafe { &*task }) {
        Ok(peer) => Box::into_raw(Box::new(peer)),
        Err(error) => {
            fail(&error);
            ptr::null_mut()
        }
    }
}

/// Decodes all payloads, and returns how many rows they became; -1 after an error.
///
/// # Safety
/// `peer` must be of `peer_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peer_run(peer: *mut Box<dyn Peer>) -> i64 {
    let mut rows = 0;
    match unsafe { (*peer).decode(&mut |batch| rows += batch.num_rows() as i64) } {
        Ok(()) => rows,
        Err(error) => {
            fail(&error);
            -1
        }
    }
}

/// Decodes all payloads to a stream of record batches; returns -1 after an error, or 0.
///
/// # Safety
/// `peer` must be of `peer_open`, and `stream` must be writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peer_stream(
    peer: *mut Box<dyn Peer>,
    stream: *mut FFI_ArrowArrayStream,
) -> i64 {
    let mut batches = Vec::new();
    let result = unsafe { (*peer).decode(&mut |batch| batches.push(Ok(batch))) };
    match (result, batches.first()) {
        (Ok(()), Some(Ok(first))) => {
            let schema = first.schema();
            let reader = RecordBatchIterator::new(batches, schema);
            unsafe { ptr::write(stream, FFI_ArrowArrayStream::new(Box::new(reader))) };
            0
        }
        (Ok(()), _) => {
            fail(&"there are no payloads".into());
            -1
        }
        (Err(error), _) => {
            fail(&error);
            -1
        }
    }
}

/// # Safety
/// `peer` must be of `peer_open`; it is not usable afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peer_close(peer: *mut Box<dyn Peer>) {
    drop(unsafe { Box::from_raw(peer) });
}
