//! The truncation of long texts.

use serde::{Deserialize, Serialize};

/// Where a long text is truncated. In both cases, the tokens of a record depend on its own text alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Truncation {
    /// At the end: the first `max_length` tokens are kept.
    #[default]
    End,
    /// In the middle: the first and the last tokens are kept, half of `max_length` each. Reviews, for example, often state their verdict
    /// at the end.
    Middle,
}

impl Truncation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Truncation::End => "end",
            Truncation::Middle => "middle",
        }
    }
}

/// Removes tokens from the middle until at most `max_length` are left. If `max_length` is odd, one more is kept at the beginning.
pub(super) fn remove_middle(tokens: &mut Vec<u32>, max_length: usize) {
    if tokens.len() > max_length {
        let (head, tail) = (max_length - max_length / 2, max_length / 2);
        tokens.drain(head..tokens.len() - tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_and_the_tail_of_a_long_text_are_kept() {
        let cut = |count: u32, max_length| {
            let mut tokens = (0..count).collect();
            remove_middle(&mut tokens, max_length);
            tokens
        };
        assert_eq!(cut(8, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(cut(9, 8), [0, 1, 2, 3, 5, 6, 7, 8]);
        assert_eq!(cut(20, 9), [0, 1, 2, 3, 4, 16, 17, 18, 19]);
        assert_eq!(cut(1, 8), [0]);
    }
}
