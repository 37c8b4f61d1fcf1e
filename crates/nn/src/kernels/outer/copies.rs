//! Copies of the operands of an outer sum, in the order in which tiles read them.
//!
//! The rows of a wide matrix are so far apart that the part that a tile reads does not stay in the first-level cache: many rows map to the
//! same few sets of the cache. Copies cost little compared with the products of a wide matrix.

use std::cell::RefCell;

use super::{OuterSum, Runs};
use crate::kernels::aligned::Aligned;
use crate::kernels::isa::Isa;
use crate::kernels::lanes::WIDTH;

/// Rows of the result that a tile of copied operands computes.
pub(super) const TILE: usize = 6;

/// Tiles whose rows are copied together: three cache lines of each row.
const TILES: usize = 8;

thread_local! {
    static COPIES: RefCell<[Aligned; 2]> = RefCell::default();
}

/// Columns that are computed together: four panels at a time with AVX-512, then two, then one; always one with other instructions.
pub(super) fn panels(n: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let left = n.saturating_sub(first).div_ceil(WIDTH);
        let count = match left {
            0 => return None,
            4.. if Isa::current() == Isa::Avx512 => 4,
            2.. if Isa::current() == Isa::Avx512 => 2,
            _ => 1,
        };
        let panel = (first, count * WIDTH);
        first += panel.1;
        Some(panel)
    })
}

impl OuterSum<'_> {
    /// Whether copies cost less time than they save.
    pub(super) fn is_worth_copying(&self) -> bool {
        let Runs { starts, len, unit, .. } = self.runs;
        // Otherwise units have different lengths.
        let one_sequence = starts.len() == 1 || (len > 0 && unit % len == 0);
        Isa::current() != Isa::Portable && one_sequence && self.m >= 64 && self.n >= 256
    }

    /// The same sum with copied operands.
    pub(super) fn run_on_copies(&self) {
        let pairs = self.pairs();
        COPIES.with_borrow_mut(|[left, right]| {
            left.reserve(self.m.next_multiple_of(TILE) * pairs.len());
            right.reserve(self.n.next_multiple_of(WIDTH) * pairs.len());
            copy_left(&pairs, self.m, left);
            copy_right(&pairs, self.n, right);
            let unit = self.runs.unit * self.operands.len();
            let runs = Runs { starts: &[(0, 0)], len: pairs.len(), left_step: TILE, right_step: 0, unit };
            OuterSum { operands: &[(left, right)], runs, copied: Some(pairs.len()), ..*self }.run();
        });
    }

    /// The left and the right row of every pair, in the order in which they are added up. The slices end with their operands.
    fn pairs(&self) -> Vec<(&[f32], &[f32])> {
        let Runs { starts, len, left_step, right_step, unit } = self.runs;
        let mut pairs = Vec::with_capacity(starts.len() * len * self.operands.len());
        for starts in starts.chunks((unit / len.max(1)).max(1)) {
            for first in (0..len).step_by(unit) {
                for (left, right) in self.operands {
                    for &(p, q) in starts {
                        let pair = |t: usize| (&left[p + t * left_step..], &right[q + t * right_step..]);
                        pairs.extend((first..len.min(first + unit)).map(pair));
                    }
                }
            }
        }
        pairs
    }
}

/// Copies the first `m` floats of the left rows, tile by tile ([`TILE`] floats) and within a tile row by row. The rest of the last tile is
/// neither written nor read.
fn copy_left(pairs: &[(&[f32], &[f32])], m: usize, out: &mut [f32]) {
    for (first, out) in (0..m).step_by(TILES * TILE).zip(out.chunks_mut(TILES * TILE * pairs.len())) {
        let end = m.min(first + TILES * TILE);
        for (index, (row, _)) in pairs.iter().enumerate() {
            let mut tiles = row[first..end].chunks_exact(TILE);
            let mut at = index * TILE;
            for tile in &mut tiles {
                out[at..at + TILE].copy_from_slice(tile);
                at += TILE * pairs.len();
            }
            if let rest @ [_, ..] = tiles.remainder() {
                out[at..at + rest.len()].copy_from_slice(rest);
            }
        }
    }
}

/// Copies the right rows, panel by panel ([`panels`]) and within a panel row by row.
fn copy_right(pairs: &[(&[f32], &[f32])], n: usize, out: &mut [f32]) {
    for (first, width) in panels(n) {
        let out = out[first * pairs.len()..].chunks_exact_mut(width);
        for (out, (_, row)) in out.zip(pairs) {
            out.copy_from_slice(&row[first..first + width]);
        }
    }
}
