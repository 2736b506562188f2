//! The protobuf wire format, as much of it as a trace takes: varints and length-delimited fields.

/// A message being built.
#[derive(Debug, Default, Clone)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// Appends a varint field.
    pub(super) fn number(&mut self, field: u32, value: u64) -> &mut Self {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    /// Appends a fixed 64-bit field.
    pub(super) fn fixed64(&mut self, field: u32, value: u64) -> &mut Self {
        self.varint(u64::from(field) << 3 | 1);
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends a string field.
    pub(super) fn text(&mut self, field: u32, value: &str) -> &mut Self {
        self.delimited(field, value.as_bytes());
        self
    }

    /// Appends a message field.
    pub(super) fn message(&mut self, field: u32, value: &Self) -> &mut Self {
        self.delimited(field, &value.bytes);
        self
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn delimited(&mut self, field: u32, value: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::Message;

    #[test]
    fn fields_are_encoded_as_the_wire_format_says() {
        let mut inner = Message::default();
        inner.number(1, 150);
        let mut message = Message::default();
        message.message(3, &inner).text(2, "testing").fixed64(47, 1);
        let expected = [
            &[0x1a, 0x03, 0x08, 0x96, 0x01, 0x12, 0x07][..],
            b"testing",
            &[0xf9, 0x02, 1, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(message.bytes(), expected.concat());
    }
}
