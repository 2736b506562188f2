//! Protobuf, taken apart.

/// A field of a message: its number, and its varint, fixed64 or bytes.
#[derive(Debug, Clone)]
pub enum Value {
    Number(u64),
    Bytes(Vec<u8>),
}

pub fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

pub fn decode(mut bytes: &[u8]) -> Vec<(u64, Value)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => Value::Number(varint(&mut bytes)),
            1 => {
                let (fixed, rest) = bytes.split_at(8);
                bytes = rest;
                Value::Number(u64::from_le_bytes(fixed.try_into().unwrap()))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (inner, rest) = bytes.split_at(length);
                bytes = rest;
                Value::Bytes(inner.to_vec())
            }
            wire => panic!("wire type {wire}"),
        };
        fields.push((key >> 3, value));
    }
    fields
}

pub fn number(fields: &[(u64, Value)], field: u64) -> Option<u64> {
    fields.iter().find_map(|(f, v)| match v {
        Value::Number(n) if *f == field => Some(*n),
        _ => None,
    })
}

pub fn bytes_of(fields: &[(u64, Value)], field: u64) -> Option<Vec<u8>> {
    fields.iter().find_map(|(f, v)| match v {
        Value::Bytes(b) if *f == field => Some(b.clone()),
        _ => None,
    })
}
