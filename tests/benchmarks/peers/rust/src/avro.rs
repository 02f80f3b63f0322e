//! arrow-avro: an object container file, and datums without a frame.

use std::io::Cursor;

use arrow_array::RecordBatch;
use arrow_avro::reader::{Decoder, DecoderMode, ReaderBuilder};
use arrow_avro::schema::{AvroSchema, SchemaStore};

use crate::{Failure, Input, Peer};

pub struct Files {
    input: Input,
}

impl Files {
    pub fn new(input: Input) -> Result<Self, Failure> {
        Ok(Files { input })
    }
}

impl Peer for Files {
    fn decode(&mut self, sink: &mut dyn FnMut(RecordBatch)) -> Result<(), Failure> {
        let reader = ReaderBuilder::new()
            .with_batch_size(self.input.rows)
            .build(Cursor::new(self.input.data))?;
        for batch in reader {
            sink(batch?);
        }
        Ok(())
    }
}

pub struct Datums {
    input: Input,
    decoder: Decoder,
}

impl Datums {
    pub fn new(input: Input) -> Result<Self, Failure> {
        let mut schemas = SchemaStore::new();
        let text = String::from_utf8(input.definition.to_vec())?;
        let fingerprint = schemas.register(AvroSchema::new(text))?;
        let decoder = ReaderBuilder::new()
            .with_batch_size(input.rows)
            .with_writer_schema_store(schemas)
            .with_active_fingerprint(fingerprint)
            .with_decoder_mode(DecoderMode::UnframedDatum)
            .build_decoder()?;
        Ok(Datums { input, decoder })
    }
}

impl Peer for Datums {
    fn decode(&mut self, sink: &mut dyn FnMut(RecordBatch)) -> Result<(), Failure> {
        for positions in self.input.positions.chunks(self.input.rows) {
            for &position in positions {
                self.decoder.decode(self.input.payload(position))?;
            }
            if let Some(batch) = self.decoder.flush()? {
                sink(batch);
            }
        }
        Ok(())
    }
}
