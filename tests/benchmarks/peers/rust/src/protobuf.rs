//! ptars: protobuf messages in an Arrow array of bytes, which is made before the clock starts.

use arrow_array::builder::BinaryBuilder;
use arrow_array::{BinaryArray, RecordBatch};
use prost_reflect::{DescriptorPool, MessageDescriptor};
use ptars_core::proto_to_arrow::binary_array_to_record_batch_direct;
use ptars_core::{EnumRepr, PtarsConfig};

use crate::{Failure, Input, Peer};

pub struct Ptars {
    messages: Vec<BinaryArray>,
    descriptor: MessageDescriptor,
    config: PtarsConfig,
}

impl Ptars {
    pub fn new(input: Input) -> Result<Self, Failure> {
        let descriptor = DescriptorPool::decode(input.definition)?
            .get_message_by_name(input.root)
            .ok_or("the message is not in the descriptors")?;
        let messages = input
            .positions
            .chunks(input.rows)
            .map(|positions| {
                let mut builder = BinaryBuilder::new();
                for &position in positions {
                    builder.append_value(input.payload(position));
                }
                builder.finish()
            })
            .collect();
        let config = PtarsConfig::new().with_enum_repr(EnumRepr::String);
        Ok(Ptars { messages, descriptor, config })
    }
}

impl Peer for Ptars {
    fn decode(&mut self, sink: &mut dyn FnMut(RecordBatch)) -> Result<(), Failure> {
        for array in &self.messages {
            sink(binary_array_to_record_batch_direct(array, &self.descriptor, &self.config)?);
        }
        Ok(())
    }
}
