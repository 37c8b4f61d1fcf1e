//! The cells of a table: which records are counted together. A layout depends on public numbers alone.

use sordino_nn::{Shape, Targets};

use super::{classes::Cell, numbers};
use crate::evaluation::class_of;

/// The cells of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Layout {
    /// Classes: every record is in one cell.
    Classes(ClassCells),
    /// Numbers: a histogram of residuals, and sums of cut squared and absolute residuals.
    Numbers {
        /// The number of values that are predicted for each record.
        width: usize,
    },
    /// Tokens: sums of cut losses and of their squares.
    Tokens {
        /// The loss at which records are cut.
        largest: f64,
    },
}

/// The cells for classes.
///
/// For two classes: true class x bin of the score, where the sign of the score is the predicted class. For more: true class x right or
/// wrong x bins of probabilities, and in the finest layout also the predicted class.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassCells {
    pub(super) classes: usize,
    /// Whether wrong predictions are counted for each pair of true and predicted class.
    pub(super) pairs: bool,
    /// Bins of the log-odds of the predicted class, if it is right (or, for two classes, in any case).
    pub(super) right: &'static [f64],
    /// Bins of the log-odds of the predicted class, and of those of the true class, if the prediction is wrong.
    pub(super) wrong: [&'static [f64]; 2],
    /// Whether the outputs of the model are log-odds, so that probabilities can be measured.
    pub(super) probabilities: bool,
}

/// Edges of log-odds for two classes, from fine to coarse. Far edges are needed for overconfident models.
const TWO: [&[f64]; 5] = [
    &[
        0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5,
        4.0, 4.5, 5.0, 5.5, 6.0, 7.0, 8.0, 10.0, 12.0, 14.0, 16.0, 24.0, 32.0,
    ],
    &[0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0],
    &[1.0, 2.0, 4.0, 8.0, 16.0],
    &[2.0, 8.0],
    &[],
];
/// Edges for more classes. Those of wrong predictions are among those of right ones, so that confidences can be grouped.
const RIGHT: &[f64] = &[-1.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0];
const WRONG: [&[f64]; 2] = [&[0.0, 2.0, 8.0], &[-12.0, -6.0, -3.0, -1.0]];
const FINE_RIGHT: &[f64] = &[
    -2.0, -1.5, -1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0,
    8.0, 16.0,
];
const FINE_WRONG: [&[f64]; 2] = [
    WRONG[0],
    &[
        -16.0, -12.0, -9.0, -7.0, -6.0, -5.0, -4.5, -4.0, -3.5, -3.0, -2.5, -2.25, -2.0, -1.75, -1.5, -1.25,
        -1.0, -0.75, -0.5, -0.25,
    ],
];
/// The largest table.
const MOST_CELLS: usize = 1 << 22;

impl Layout {
    /// Where residuals are cut, in scaled units.
    pub const RESIDUAL: f64 = 2.0;

    /// The layout for these targets. `noise_variance` is that of one cell: the finest layout is chosen for which the noise of the whole
    /// table does not exceed the error of sampling the records, which are `slots` in number.
    ///
    /// `probabilities` is whether the outputs of the model are log-odds.
    pub fn new(
        targets: &Targets<'_>,
        input: Shape,
        classes: usize,
        probabilities: bool,
        slots: u64,
        noise_variance: f64,
    ) -> Self {
        match targets {
            Targets::Values { width, .. } => Self::Numbers { width: *width },
            Targets::NextTokens { .. } => {
                let tokens = if let Shape::Tokens { vocabulary, .. } = input { vocabulary } else { 2 };
                Self::Tokens { largest: 2.0 * (tokens.max(2) as f64).ln() }
            }
            Targets::Classes(_) => {
                let fits = |cells: &ClassCells| {
                    cells.len() <= MOST_CELLS && cells.len() as f64 * noise_variance <= slots as f64
                };
                let choices = ClassCells::choices(classes, probabilities);
                let coarsest = choices.last().cloned();
                let chosen = choices.into_iter().find(fits).or(coarsest);
                Self::Classes(chosen.unwrap_or_else(|| unreachable!("there is a coarsest layout")))
            }
        }
    }

    /// The number of cells.
    pub fn cells(&self) -> usize {
        match self {
            Self::Classes(cells) => cells.len(),
            Self::Numbers { .. } => numbers::EDGES.len() + 3,
            Self::Tokens { .. } => 2,
        }
    }

    /// Whether every slot adds a weight of exactly 1 to the table.
    pub(super) fn fills_one_cell(&self) -> bool {
        matches!(self, Self::Classes(_))
    }
}

impl ClassCells {
    /// All layouts for so many classes, from fine to coarse.
    fn choices(classes: usize, probabilities: bool) -> Vec<Self> {
        let classes = classes.max(2);
        let of = |pairs, right, wrong| Self { classes, pairs, right, wrong, probabilities };
        match classes {
            2 => TWO.iter().map(|edges| of(true, edges, [&[], &[]])).collect(),
            _ => vec![
                of(true, FINE_RIGHT, FINE_WRONG),
                of(true, RIGHT, WRONG),
                of(false, FINE_RIGHT, FINE_WRONG),
                of(false, RIGHT, WRONG),
                of(false, &[], [&[], &[]]),
            ],
        }
    }

    /// Cells of one true class: those of right predictions come first.
    fn of_class(&self) -> (usize, usize) {
        let bins = self.right.len() + 1;
        let wrong = match self.classes {
            2 => bins,
            classes => {
                let others = if self.pairs { classes - 1 } else { 1 };
                others * (self.wrong[0].len() + 1) * (self.wrong[1].len() + 1)
            }
        };
        (bins, wrong)
    }

    fn len(&self) -> usize {
        let (right, wrong) = self.of_class();
        self.classes * (right + wrong)
    }

    /// The cell of a record with this class and these outputs.
    pub(crate) fn cell(&self, class: u32, outputs: &[f32]) -> usize {
        let (right, wrong) = self.of_class();
        let (truth, predicted) = (class as usize, class_of(outputs) as usize);
        let first = truth * (right + wrong);
        let top = log_odds(outputs, predicted);
        if self.classes == 2 {
            return first + if truth == predicted { 0 } else { right } + bin(self.right, top.abs());
        }
        if truth == predicted {
            return first + bin(self.right, top);
        }
        let [tops, truths] = self.wrong;
        let other = if self.pairs { predicted - usize::from(predicted > truth) } else { 0 };
        let place = bin(tops, top) * (truths.len() + 1) + bin(truths, log_odds(outputs, truth));
        first + right + other * (tops.len() + 1) * (truths.len() + 1) + place
    }

    /// What the records of each cell have in common.
    pub(super) fn describe(&self) -> Vec<Cell> {
        let mut cells = Vec::with_capacity(self.len());
        let two = self.classes == 2;
        // The predicted class has at least the share of a uniform prediction, and another class less than one half.
        let least = -(self.classes as f64 - 1.0).ln();
        let right = || middles(self.right, two).into_iter().zip(ranges(self.right, two, Some(least), None));
        for truth in 0..self.classes {
            for (odds, range) in right() {
                let cell =
                    Cell { truth, predicted: Some(truth), right: true, top: odds, true_odds: odds, range };
                cells.push(cell);
            }
            if two {
                let wrong = right().map(|(odds, [low, high])| Cell {
                    truth,
                    predicted: Some(1 - truth),
                    right: false,
                    top: odds,
                    true_odds: -odds,
                    range: [-high, -low],
                });
                cells.extend(wrong);
                continue;
            }
            let others: Vec<Option<usize>> = match self.pairs {
                true => (0..self.classes).filter(|other| *other != truth).map(Some).collect(),
                false => vec![None],
            };
            for predicted in others {
                for top in middles(self.wrong[0], false) {
                    let odds = middles(self.wrong[1], false);
                    let odds = odds.into_iter().zip(ranges(self.wrong[1], false, None, Some(0.0)));
                    cells.extend(odds.map(|(true_odds, range)| Cell {
                        truth,
                        predicted,
                        right: false,
                        top,
                        true_odds,
                        range,
                    }));
                }
            }
        }
        cells
    }

    /// The edges of the confidences that can be told apart, for right and wrong predictions alike.
    pub(super) fn confidence_edges(&self) -> &'static [f64] {
        if self.classes == 2 { self.right } else { self.wrong[0] }
    }

    /// Whether probabilities can be computed from the cells.
    pub(super) fn has_probabilities(&self) -> bool {
        self.probabilities && !self.right.is_empty()
    }
}

/// The bin of a number: how many edges are not above it. A NaN is in the first.
pub(super) fn bin(edges: &[f64], number: f64) -> usize {
    edges.iter().filter(|edge| number >= **edge).count()
}

/// A number for each bin: its middle; beyond the outer edges, a quarter of the edge further, and at least 1. Numbers that are not
/// negative have a first bin from 0.
fn middles(edges: &[f64], from_zero: bool) -> Vec<f64> {
    let (Some(first), Some(last)) = (edges.first(), edges.last()) else { return vec![1.0] };
    let beyond = |edge: f64| 1.0_f64.max(0.25 * edge.abs());
    let lowest = if from_zero { 0.5 * first } else { first - beyond(*first) };
    let inner = edges.windows(2).map(|pair| 0.5 * (pair[0] + pair[1]));
    std::iter::once(lowest).chain(inner).chain([last + beyond(*last)]).collect()
}

/// The range of each bin. Without a bound, the outer bins end at the number that stands for them: what lies beyond is cut there.
fn ranges(edges: &[f64], from_zero: bool, least: Option<f64>, most: Option<f64>) -> Vec<[f64; 2]> {
    let numbers = middles(edges, from_zero);
    let (Some(first), Some(last)) = (edges.first(), edges.last()) else { return vec![[numbers[0]; 2]] };
    let lowest = if from_zero { 0.0 } else { least.unwrap_or(numbers[0]).min(*first) };
    let highest = most.unwrap_or(numbers[numbers.len() - 1]).max(*last);
    let lows = std::iter::once(lowest).chain(edges.iter().copied());
    lows.zip(edges.iter().copied().chain([highest])).map(|(low, high)| [low, high]).collect()
}

/// `log(p / (1 - p))` of a class: its output minus the logarithm of the sum of the exponentials of the others.
pub(crate) fn log_odds(outputs: &[f32], class: usize) -> f64 {
    if let [only] = outputs {
        return if class == 1 { f64::from(*only) } else { -f64::from(*only) };
    }
    let others =
        || outputs.iter().enumerate().filter(|(other, _)| *other != class).map(|(_, z)| f64::from(*z));
    let greatest = others().fold(f64::NEG_INFINITY, f64::max);
    f64::from(outputs[class]) - greatest - others().map(|z| (z - greatest).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_describe_the_records_in_them() {
        for (classes, pairs) in [(2, true), (3, true), (3, false), (7, true)] {
            for cells in ClassCells::choices(classes, true) {
                let described = cells.describe();
                assert_eq!(described.len(), cells.len());
                for seed in 0..500_u32 {
                    // Outputs from -20 to 20, and classes, in no particular order.
                    let output =
                        |class: u32| (f64::from((seed * 7919 + class * 104_729) % 1009) / 25.0 - 20.0) as f32;
                    let outputs: Vec<f32> = (0..classes as u32).map(output).collect();
                    let truth = seed % classes as u32;
                    let cell = described[cells.cell(truth, &outputs)];
                    assert_eq!(cell.truth, truth as usize);
                    assert_eq!(cell.right, class_of(&outputs) == truth);
                    if let Some(predicted) = cell.predicted {
                        assert_eq!(predicted, class_of(&outputs) as usize);
                    }
                    assert!(cell.predicted.is_some() || !cells.pairs || !pairs);
                    if cells.right.len() > 5 {
                        // Fine bins are at most 8 wide where they end.
                        let odds = log_odds(&outputs, truth as usize).clamp(-20.0, 20.0);
                        assert!((cell.true_odds.clamp(-20.0, 20.0) - odds).abs() < 9.0, "{odds} {cell:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn one_output_and_two_outputs_give_the_same_cells() {
        for cells in ClassCells::choices(2, true) {
            for z in [-50.0_f32, -1.25, -0.15, 0.35, 2.0, 7.0] {
                for class in [0, 1] {
                    assert_eq!(cells.cell(class, &[z]), cells.cell(class, &[0.5, 0.5 + z]), "{z}");
                }
            }
        }
    }

    #[test]
    fn outputs_that_are_not_finite_have_a_cell() {
        for classes in [2, 5] {
            for cells in ClassCells::choices(classes, true) {
                for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    assert!(cells.cell(1, &vec![bad; classes]) < cells.len());
                    let mut mixed = vec![0.0; classes];
                    mixed[0] = bad;
                    assert!(cells.cell(1, &mixed) < cells.len());
                }
            }
        }
    }

    #[test]
    fn little_data_or_much_noise_gives_a_coarser_table() {
        let classes = vec![0; 5];
        let targets = Targets::Classes(&classes);
        let cells = |classes, slots, variance| {
            Layout::new(&targets, Shape::Features(1), classes, true, slots, variance).cells()
        };
        assert_eq!([1_000_000, 90, 30, 5].map(|slots| cells(2, slots, 2.0)), [136, 24, 12, 4]);
        assert_eq!([100_000, 1000, 50].map(|slots| cells(10, slots, 2.0)), [7780, 280, 20]);
        // Counts without noise are as fine as possible.
        assert_eq!(cells(10, 1, 0.0), 7780);
        // A table of all pairs of very many classes would be too large.
        assert_eq!(cells(1000, 1, 0.0), 106_000);
    }

    #[test]
    fn log_odds_do_not_overflow() {
        assert!((log_odds(&[1000.0, 0.0, 0.0], 0) - (1000.0 - 2.0_f64.ln())).abs() < 1e-9);
        assert!((log_odds(&[1000.0, 0.0, 0.0], 1) + 1000.0).abs() < 1e-9);
        assert_eq!([log_odds(&[3.0], 1), log_odds(&[3.0], 0)], [3.0, -3.0]);
    }
}
