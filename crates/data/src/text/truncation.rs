//! Which tokens of a long text are left out.

use serde::{Deserialize, Serialize};

/// The part of a long text that is left out. A record depends on its own text alone either way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Truncation {
    /// What follows the first `max_length` tokens.
    #[default]
    End,
    /// What lies between the first and the last tokens, half of `max_length` each. Reviews, for example, often have their verdict at the
    /// end.
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

/// Removes tokens from the middle until at most `max_length` are left; of an odd number, one more is kept at the beginning.
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
