//! Parsers that are compiled for one record, the order of `payloads.py`, and its columns.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, ListArray, RecordBatch,
    StructArray,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Fields};
use serde::Deserialize;

use crate::{Failure, Input, Peer};

/// Text, borrowed unless it has escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Order<'a> {
    id: i64,
    #[serde(borrow)]
    customer: Customer<'a>,
    #[serde(borrow)]
    items: Vec<Item<'a>>,
    #[serde(borrow)]
    status: Text<'a>,
    paid: bool,
    total: f64,
}

#[derive(Deserialize)]
struct Customer<'a> {
    id: i64,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow, default)]
    city: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    sku: Text<'a>,
    quantity: i32,
    price: f64,
}

struct Columns {
    id: Vec<i64>,
    customer_id: Vec<i64>,
    name: StringBuilder,
    city: StringBuilder,
    item_ends: Vec<i32>,
    sku: StringBuilder,
    quantity: Vec<i32>,
    price: Vec<f64>,
    status: StringBuilder,
    paid: Vec<bool>,
    total: Vec<f64>,
}

impl Columns {
    fn new(rows: usize) -> Self {
        let texts = || StringBuilder::with_capacity(rows, rows * 16);
        let mut item_ends = Vec::with_capacity(rows + 1);
        item_ends.push(0);
        Columns {
            id: Vec::with_capacity(rows),
            customer_id: Vec::with_capacity(rows),
            name: texts(),
            city: texts(),
            item_ends,
            sku: texts(),
            quantity: Vec::with_capacity(2 * rows),
            price: Vec::with_capacity(2 * rows),
            status: texts(),
            paid: Vec::with_capacity(rows),
            total: Vec::with_capacity(rows),
        }
    }

    fn append(&mut self, order: &Order) {
        self.id.push(order.id);
        self.customer_id.push(order.customer.id);
        self.name.append_value(&order.customer.name.0);
        self.city.append_option(order.customer.city.as_ref().map(|city| &city.0));
        for item in &order.items {
            self.sku.append_value(&item.sku.0);
            self.quantity.push(item.quantity);
            self.price.push(item.price);
        }
        self.item_ends.push(self.quantity.len() as i32);
        self.status.append_value(&order.status.0);
        self.paid.push(order.paid);
        self.total.push(order.total);
    }

    fn finish(mut self) -> Result<RecordBatch, Failure> {
        let customer = record(vec![
            ("id", Arc::new(Int64Array::from(self.customer_id))),
            ("name", Arc::new(self.name.finish())),
            ("city", Arc::new(self.city.finish())),
        ])?;
        let item = record(vec![
            ("sku", Arc::new(self.sku.finish())),
            ("quantity", Arc::new(Int32Array::from(self.quantity))),
            ("price", Arc::new(Float64Array::from(self.price))),
        ])?;
        let field = Field::new("item", DataType::Struct(item.fields().clone()), true);
        let ends = OffsetBuffer::new(ScalarBuffer::from(self.item_ends));
        let items = ListArray::try_new(Arc::new(field), ends, Arc::new(item), None)?;
        Ok(RecordBatch::from(record(vec![
            ("id", Arc::new(Int64Array::from(self.id))),
            ("customer", Arc::new(customer)),
            ("items", Arc::new(items)),
            ("status", Arc::new(self.status.finish())),
            ("paid", Arc::new(BooleanArray::from(self.paid))),
            ("total", Arc::new(Float64Array::from(self.total))),
        ])?))
    }
}

fn record(columns: Vec<(&str, ArrayRef)>) -> Result<StructArray, Failure> {
    let (fields, arrays): (Vec<_>, Vec<_>) = columns
        .into_iter()
        .map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array))
        .unzip();
    Ok(StructArray::try_new(Fields::from(fields), arrays, None)?)
}

pub struct SonicRs {
    input: Input,
}

impl SonicRs {
    pub fn new(input: Input) -> Self {
        SonicRs { input }
    }
}

impl Peer for SonicRs {
    fn decode(&mut self, sink: &mut dyn FnMut(RecordBatch)) -> Result<(), Failure> {
        for positions in self.input.positions.chunks(self.input.rows) {
            let mut columns = Columns::new(positions.len());
            for &position in positions {
                columns.append(&sonic_rs::from_slice(self.input.payload(position))?);
            }
            sink(columns.finish()?);
        }
        Ok(())
    }
}

/// simd-json, a port of simdjson: it unescapes in place, so each payload is copied first.
pub struct SimdJson {
    input: Input,
    payload: Vec<u8>,
    buffers: simd_json::Buffers,
}

impl SimdJson {
    pub fn new(input: Input) -> Self {
        SimdJson { input, payload: Vec::new(), buffers: simd_json::Buffers::default() }
    }
}

impl Peer for SimdJson {
    fn decode(&mut self, sink: &mut dyn FnMut(RecordBatch)) -> Result<(), Failure> {
        for positions in self.input.positions.chunks(self.input.rows) {
            let mut columns = Columns::new(positions.len());
            for &position in positions {
                self.payload.clear();
                self.payload.extend_from_slice(self.input.payload(position));
                let order: Order = simd_json::serde::from_slice_with_buffers(
                    &mut self.payload,
                    &mut self.buffers,
                )?;
                columns.append(&order);
            }
            sink(columns.finish()?);
        }
        Ok(())
    }
}
