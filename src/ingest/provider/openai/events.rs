//! Server-sent events out of bytes as they come: the data of each event, and no other field.
//!
//! Not a crate's parser: those end at the first byte that is no UTF-8, and models give such bytes.

#[derive(Default)]
pub struct Events {
    /// Of the line that is under way.
    line: Vec<u8>,
    data: Option<String>,
}

impl Events {
    /// The data of events that these bytes complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut complete = Vec::new();
        for byte in bytes {
            if *byte == b'\n' {
                complete.extend(self.end_line());
            } else {
                self.line.push(*byte);
            }
        }
        complete
    }

    /// The last event, if the stream ends without the empty line after it.
    pub fn finish(mut self) -> Option<String> {
        self.end_line();
        self.data
    }

    fn end_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.strip_suffix('\r').unwrap_or(&line);
        if line.is_empty() {
            return self.data.take();
        }
        if let Some(data) = line.strip_prefix("data:") {
            let data = data.strip_prefix(' ').unwrap_or(data);
            match &mut self.data {
                Some(before) => {
                    before.push('\n');
                    before.push_str(data);
                }
                None => self.data = Some(data.to_owned()),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] =
        b": hello\ndata: one\n\nevent: x\r\ndata:two\r\ndata: lines\r\n\r\n\n\nid: 7\n\ndata: caf\xc3\xa9 \xff\n\ndata: last";

    #[test]
    fn data_is_the_same_however_the_bytes_are_cut() {
        for size in 1..=STREAM.len() {
            let mut events = Events::default();
            let mut data: Vec<String> = STREAM.chunks(size).flat_map(|bytes| events.push(bytes)).collect();
            data.extend(events.finish());
            assert_eq!(data, ["one", "two\nlines", "café \u{fffd}", "last"], "{size}");
        }
    }
}
