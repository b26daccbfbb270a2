//! The frames of a connection, followed and not kept.
//!
//! The codec tells when a message is whole, and nothing of one that is under way: a message of many small frames costs many
//! times its bytes. Owns that count. Knows the heads of frames (ZMTP 3.1, section "framing") and nothing of what is in them.

/// What each frame costs beside its bytes, as the codec counts it.
pub(super) const FRAME_COST: usize = 64;

/// The longest command. Commands are kept whole and cost nothing, and those that there are have some hundred bytes: READY has a
/// type and an identity of at most 255, PING a context of at most 16 (ZMTP 3.1).
const COMMAND_MAX: u64 = 4 * 1024;

/// A command of so many bytes.
#[derive(Debug, thiserror::Error)]
#[error("a command of {0} bytes, and none has more than {COMMAND_MAX}")]
pub(super) struct LongCommand(u64);

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Where a stream of frames is.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The beginning of the next head, as far as it is here.
    head: Vec<u8>,
    /// Bytes of a body that are still to come.
    body_left: u64,
    /// The flags of the frame that is under way.
    flags: u8,
    /// What the message that is under way costs so far.
    cost: usize,
}

impl Frames {
    /// Goes on by what came.
    ///
    /// # Errors
    /// At a command that is longer than any that there is.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) -> Result<(), LongCommand> {
        loop {
            let taken = usize::try_from(self.body_left).unwrap_or(usize::MAX).min(bytes.len());
            self.body_left -= taken as u64;
            if self.flags & COMMAND == 0 {
                self.cost = self.cost.saturating_add(taken);
            }
            bytes = bytes.get(taken..).unwrap_or_default();
            if self.body_left > 0 {
                return Ok(());
            }
            self.frame_ended();
            let Some((first, rest)) = bytes.split_first() else { return Ok(()) };
            self.head.push(*first);
            bytes = rest;
            self.begin_body()?;
        }
    }

    /// What the message that is under way costs so far, in bytes.
    pub(super) const fn cost(&self) -> usize {
        self.cost
    }

    /// A message ends with a frame that no other follows.
    fn frame_ended(&mut self) {
        if self.head.is_empty() && self.flags & (MORE | COMMAND) == 0 {
            self.cost = 0;
        }
    }

    /// Once the head is whole.
    fn begin_body(&mut self) -> Result<(), LongCommand> {
        let Some((flags, size)) = self.head.split_first() else { return Ok(()) };
        let size = match size {
            [size] if flags & LONG == 0 => u64::from(*size),
            [a, b, c, d, e, f, g, h] => u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]),
            _ => return Ok(()),
        };
        self.flags = *flags;
        self.body_left = size;
        self.head.clear();
        if self.flags & COMMAND == 0 {
            self.cost = self.cost.saturating_add(FRAME_COST);
        } else if size > COMMAND_MAX {
            return Err(LongCommand(size));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = match u8::try_from(body.len()) {
            Ok(short) => vec![flags, short],
            Err(_) => [&[flags | LONG][..], &(body.len() as u64).to_be_bytes()].concat(),
        };
        bytes.extend_from_slice(body);
        bytes
    }

    fn cost(bytes: &[u8]) -> usize {
        let mut frames = Frames::default();
        frames.follow(bytes).expect("short commands");
        frames.cost()
    }

    #[test]
    fn what_is_under_way_costs_its_bytes_and_64_for_each_frame_and_a_whole_message_nothing() {
        let name = frame(MORE, b"worker");
        assert_eq!(cost(&name), 64 + 6);
        assert_eq!(cost(&frame(MORE, &[])), 64, "empty frames are not free");
        assert_eq!(cost(&[frame(MORE, &[]), frame(MORE, &[7; 1000])].concat()), 64 + 64 + 1000);
        assert_eq!(cost(&[name.clone(), frame(0, &[7; 1000])].concat()), 0);
        assert_eq!(cost(&[name.clone(), frame(0, &[7; 1000]), name].concat()), 64 + 6);
    }

    #[test]
    fn commands_are_no_part_of_a_message() {
        assert_eq!(cost(&[frame(MORE, b"worker"), frame(COMMAND, b"\x04PING\0\0")].concat()), 64 + 6);
        assert_eq!(cost(&frame(COMMAND, b"\x04PING\0\0")), 0);
    }

    // Rules D1, W5.
    #[test]
    fn a_command_that_claims_to_be_long_is_refused_at_its_head() {
        let mut frames = Frames::default();
        assert!(frames.follow(&frame(COMMAND, &[7; 4096])).is_ok());
        let head = [&[COMMAND | LONG][..], &4097_u64.to_be_bytes()].concat();
        assert!(frames.follow(&head[..8]).is_ok() && frames.follow(&head[8..]).is_err());
    }

    #[test]
    fn a_frame_that_claims_to_be_huge_costs_what_came_of_it() {
        let head = [&[LONG][..], &u64::MAX.to_be_bytes()].concat();
        assert_eq!(cost(&[head, vec![7; 10]].concat()), 64 + 10);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_in_which_pieces_bytes_come(
            messages in proptest::collection::vec((any::<bool>(), 0..600_usize), 0..8),
            cut in 0..4000_usize,
            pieces in 1..9_usize,
        ) {
            let bytes: Vec<u8> = messages.iter().flat_map(|(more, n)| frame(u8::from(*more), &vec![7; *n])).collect();
            let bytes = &bytes[..cut.min(bytes.len())];
            let mut frames = Frames::default();
            bytes.chunks(pieces).for_each(|piece| frames.follow(piece).expect("no commands"));
            prop_assert_eq!(frames.cost(), cost(bytes));
        }
    }
}
