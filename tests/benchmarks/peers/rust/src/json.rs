//! arrow-json: lines of JSON, decoded by an Arrow schema.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_json::ReaderBuilder;
use arrow_json::reader::Decoder;

use crate::{Failure, Input, Peer};

pub struct ArrowJson {
    input: Input,
    decoder: Decoder,
}

impl ArrowJson {
    pub fn new(mut input: Input) -> Result<Self, Failure> {
        let schema = input.schema.take().ok_or("arrow-json needs a schema")?;
        let decoder = ReaderBuilder::new(Arc::new(schema))
            .with_batch_size(input.rows)
            .build_decoder()?;
        Ok(ArrowJson { input, decoder })
    }
}

impl Peer for ArrowJson {
    fn decode(&mut self, sink: &mut dyn FnMut(RecordBatch)) -> Result<(), Failure> {
        let mut rest = self.input.data;
        loop {
            rest = &rest[self.decoder.decode(rest)?..];
            match self.decoder.flush()? {
                Some(batch) => sink(batch),
                None => return Ok(()),
            }
        }
    }
}
