//! Transforms and packs filters.

use super::{Source, Tile, Window, to_frequencies};
use crate::kernels::lanes::WIDTH;
use crate::kernels::packed::Packed;

/// The largest number of frequencies.
const MOST: usize = 36;

/// Filters of 3x3 taps: tap `t` of the filter from row `r` (a channel that is read) to column `c` (a channel that is written) is
/// `source[r * row_step + c * column_step + t]`.
#[derive(Clone, Copy)]
pub(crate) struct Filters<'a> {
    pub(crate) source: &'a [f32],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) row_step: usize,
    pub(crate) column_step: usize,
    /// Whether the taps are reversed, as for the gradient of the input.
    pub(crate) reversed: bool,
}

impl Filters<'_> {
    /// The filters for the gradient of the input: from output channels to input channels.
    pub(crate) fn transposed(self) -> Self {
        Filters {
            rows: self.columns,
            columns: self.rows,
            row_step: self.column_step,
            column_step: self.row_step,
            reversed: !self.reversed,
            ..self
        }
    }
}

const TAPS: usize = 9;

/// The number of filters that are transformed before their frequencies are copied to the packs.
const TOGETHER: usize = 8;

/// Packs `G g G^T` for each filter: `packs[b * frequencies + f]` is frequency `f` of columns `b * block ..`, at most `block` of them.
pub(crate) fn pack_filters(tile: Tile, filters: Filters<'_>, block: usize, packs: &mut [Packed]) {
    let frequencies = tile.frequencies();
    let Filters { rows, columns, .. } = filters;
    assert!(block.is_multiple_of(WIDTH), "blocks consist of whole panels");
    for (number, packs) in packs.chunks_exact_mut(frequencies).enumerate() {
        let (first, end) = (number * block, columns.min((number + 1) * block));
        let mut panels: Vec<&mut [f32]> =
            packs.iter_mut().map(|pack| pack.panels_mut(rows, end - first)).collect();
        for (panel, column) in (first..end).step_by(WIDTH).enumerate() {
            for row in (0..rows).step_by(TOGETHER) {
                let count = TOGETHER.min(rows - row);
                let taps = gather(filters, row, column, count);
                let mut transformed = [0.0; MOST * TOGETHER * WIDTH];
                for index in 0..count {
                    let (start, out) = (index * TAPS * WIDTH, &mut transformed[index * WIDTH..]);
                    let window = Window { start, row: 3 * WIDTH, pixel: WIDTH, rows: 3, columns: 3 };
                    to_frequencies(
                        Source::Taps(tile),
                        taps.as_flattened().as_flattened(),
                        window,
                        WIDTH,
                        out,
                        TOGETHER * WIDTH,
                    );
                }
                let own = transformed.chunks_exact(TOGETHER * WIDTH);
                for (panels, own) in panels.iter_mut().zip(own) {
                    panels[(panel * rows + row) * WIDTH..][..count * WIDTH]
                        .copy_from_slice(&own[..count * WIDTH]);
                }
            }
        }
    }
}

type Taps = [[[f32; WIDTH]; TAPS]; TOGETHER];

/// The taps of sixteen columns of some rows; missing ones are zero.
fn gather(filters: Filters<'_>, row: usize, column: usize, count: usize) -> Taps {
    let mut taps = [[[0.0; WIDTH]; TAPS]; TOGETHER];
    for j in 0..WIDTH.min(filters.columns - column) {
        for (i, taps) in taps[..count].iter_mut().enumerate() {
            let start = (row + i) * filters.row_step + (column + j) * filters.column_step;
            let own = &filters.source[start..][..TAPS];
            for t in 0..TAPS {
                taps[t][j] = own[if filters.reversed { TAPS - 1 - t } else { t }];
            }
        }
    }
    taps
}
