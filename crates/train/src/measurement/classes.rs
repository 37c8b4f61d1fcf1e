//! Metrics of predicted classes.

use super::{
    ClassMetrics, Estimate, Majority, Metrics,
    layout::{ClassCells, bin},
    table::{Table, Variance},
    temperature,
};

/// What the records of a cell have in common.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cell {
    pub(super) truth: usize,
    pub(super) predicted: Option<usize>,
    pub(super) right: bool,
    /// The log-odds of the predicted class.
    pub(super) top: f64,
    /// The log-odds of the true class: a number that stands for those of all records of the cell.
    pub(super) true_odds: f64,
    /// The smallest and the largest log-odds of the true class in the cell.
    pub(super) range: [f64; 2],
}

pub(super) fn metrics(layout: &ClassCells, table: &Table) -> Metrics {
    let cells = layout.describe();
    let weights = |of: &dyn Fn(&Cell) -> bool| -> Vec<f64> {
        cells.iter().map(|cell| f64::from(u8::from(of(cell)))).collect()
    };
    let (all, right) = (vec![1.0; cells.len()], weights(&|cell| cell.right));
    let classes: Vec<ClassMetrics> = (0..layout.classes)
        .filter_map(|class| {
            let of_class = weights(&|cell| cell.truth == class);
            let found = weights(&|cell| cell.truth == class && cell.right);
            let claimed = weights(&|cell| cell.predicted == Some(class));
            Some(ClassMetrics {
                share: table.share(&of_class, &all)?,
                recall: table.share(&found, &of_class),
                precision: if layout.pairs { table.share(&found, &claimed) } else { None },
            })
        })
        .collect();
    let shares = classes.iter().map(|class| class.share).enumerate();
    let majority = shares.max_by(|(_, a), (_, b)| a.value.total_cmp(&b.value));
    let two = layout.classes == 2;
    let (odds, groups) = (layout.has_probabilities(), layout.confidence_edges());
    Metrics {
        accuracy: table.share(&right, &all),
        majority: majority.map(|(class, share)| Majority { class, share: largest_of(share, layout.classes) }),
        balanced_accuracy: balanced_accuracy(&cells, table, layout.classes),
        auc: if two { auc(&cells, table) } else { None },
        average_precision: if two { average_precision(&cells, table) } else { None },
        log_loss: odds.then(|| log_loss(&cells, table, 1.0)),
        calibration_error: odds.then(|| calibration_error(&cells, groups, table, 1.0)),
        temperature: if odds { temperature::fit(&cells, groups, table) } else { None },
        classes,
        ..Metrics::default()
    }
}

/// The largest of several shares is likely to be too large, so its interval reaches further down: by enough standard deviations for
/// that many shares at once.
fn largest_of(share: Estimate, count: usize) -> Estimate {
    let further = (1.0 + (count as f64).ln() / 1.92).sqrt();
    Estimate { low: (share.value - further * (share.value - share.low)).max(0.0), ..share }
}

/// The mean loss at a temperature. Rare wrong predictions can be missing from the records, so the interval reaches up as if there
/// were two more of them, as that of Agresti and Coull for a proportion does. It also covers the width of the cells.
pub(super) fn log_loss(cells: &[Cell], table: &Table, temperature: f64) -> Estimate {
    let losses = losses(cells, temperature);
    let value = table.positive_mean(&losses);
    let [most, least] =
        [0, 1].map(|end| table.positive_mean(&losses_at(cells, temperature, |cell| cell.range[end])));
    let low = value.min(least) - table.variance(&losses).half() / table.slots;
    let (mut wrong, mut sum, mut squares) = (1e-9, 1e-9, 1e-9);
    for ((cell, count), loss) in cells.iter().zip(&table.counts).zip(&losses) {
        let count = if cell.right { 0.0 } else { count.max(0.0) };
        wrong += count;
        sum += count * loss;
        squares += count * loss * loss;
    }
    let mut variance = table.variance(&losses);
    variance.sampling += 2.0 * squares / wrong;
    let high = value.max(most) + (2.0 * sum / wrong + variance.half()) / table.slots;
    Estimate { value: value.max(0.0), low: low.max(0.0), high: high.max(0.0) }
}

/// `-log(probability of the true class)` of each cell, at a temperature.
pub(super) fn losses(cells: &[Cell], temperature: f64) -> Vec<f64> {
    losses_at(cells, temperature, |cell| cell.true_odds)
}

fn losses_at(cells: &[Cell], temperature: f64, odds: impl Fn(&Cell) -> f64) -> Vec<f64> {
    let classes = 1 + cells.iter().map(|cell| cell.truth).max().unwrap_or(1);
    let loss = |cell: &Cell| loss_of(tempered(odds(cell), temperature, classes));
    cells.iter().map(loss).collect()
}

/// `-log(probability)` of a class with these log-odds.
fn loss_of(odds: f64) -> f64 {
    (-odds).max(0.0) + (-odds.abs()).exp().ln_1p()
}

/// The log loss of public records, each with its weight, the log-odds of its class and whether it is predicted correctly. The interval is that
/// of [`log_loss`] without noise and cells.
pub(crate) fn exact_log_loss(records: &[(f64, f64, bool)], slots: f64) -> Estimate {
    let (mut sum, mut squares, mut wrong, mut wrong_sum, mut wrong_squares) = (0.0, 0.0, 1e-9, 1e-9, 1e-9);
    for &(weight, odds, right) in records {
        let loss = loss_of(odds);
        sum += weight * loss;
        squares += weight * loss * loss;
        if !right {
            wrong += weight;
            wrong_sum += weight * loss;
            wrong_squares += weight * loss * loss;
        }
    }
    let sampling = (squares - sum * sum / slots).max(0.0);
    let half = |sampling: f64| Variance { noise: 0.0, sampling }.half() / slots;
    let value = sum / slots;
    let high = value + 2.0 * wrong_sum / wrong / slots + half(sampling + 2.0 * wrong_squares / wrong);
    Estimate { value, low: (value - half(sampling)).max(0.0), high }
}

/// The log-odds of a class at a temperature `T`, given those at temperature 1: `odds / T - (1 - 1/T) log(classes - 1)`.
///
/// For two classes this is exact. For more classes the log-odds are a concave function of `1/T`, which is `-log(classes - 1)` at 0. So for
/// `T >= 1` this line is a lower bound, and the loss that follows from it an upper bound.
fn tempered(odds: f64, temperature: f64, classes: usize) -> f64 {
    odds / temperature - (1.0 - 1.0 / temperature) * (classes as f64 - 1.0).ln()
}

/// The mean of the classes' recall; none if a class has too few records.
fn balanced_accuracy(cells: &[Cell], table: &Table, classes: usize) -> Option<Estimate> {
    let mut sums = vec![[0.0; 2]; classes];
    for (cell, count) in cells.iter().zip(&table.counts) {
        sums[cell.truth][1] += count;
        sums[cell.truth][0] += if cell.right { *count } else { 0.0 };
    }
    let mut total = 0.0;
    for (class, [_, records]) in sums.iter().enumerate() {
        let whole: Vec<f64> = cells.iter().map(|cell| f64::from(u8::from(cell.truth == class))).collect();
        let found: Vec<f64> =
            cells.iter().map(|cell| f64::from(u8::from(cell.truth == class && cell.right))).collect();
        total += table.share(&found, &whole)?.value;
        if *records <= 0.0 {
            return None;
        }
    }
    let share = 1.0 / classes as f64;
    let gradient: Vec<f64> = cells
        .iter()
        .map(|cell| {
            let [found, records] = sums[cell.truth];
            share * (f64::from(u8::from(cell.right)) - (found / records).clamp(0.0, 1.0)) / records
        })
        .collect();
    let fewest = sums.iter().map(|[_, records]| *records).fold(f64::INFINITY, f64::min);
    // A mean over classes is at least as precise as the worst recall.
    Some(table.fraction(total * share, &gradient, fewest * classes as f64))
}

/// The cells of the two classes in the order of the score of the second class: (score, cells of the first, cells of the second).
fn by_score(cells: &[Cell]) -> Vec<[usize; 2]> {
    let score = |cell: &Cell| if cell.truth == 1 { cell.true_odds } else { -cell.true_odds };
    let mut order: [Vec<usize>; 2] =
        [0, 1].map(|truth| (0..cells.len()).filter(|&c| cells[c].truth == truth).collect());
    for part in &mut order {
        part.sort_by(|&a, &b| score(&cells[a]).total_cmp(&score(&cells[b])));
    }
    let [first, second] = order;
    first.into_iter().zip(second).map(|(first, second)| [first, second]).collect()
}

/// The area under the ROC curve; ties count a half.
fn auc(cells: &[Cell], table: &Table) -> Option<Estimate> {
    let bins = by_score(cells);
    let totals = [0, 1].map(|truth| bins.iter().map(|bin| table.counts[bin[truth]]).sum::<f64>());
    let known = |truth: usize| {
        let weights: Vec<f64> = cells.iter().map(|cell| f64::from(u8::from(cell.truth == truth))).collect();
        table.share(&weights, &weights).is_some()
    };
    if !(known(0) && known(1)) {
        return None;
    }
    let [negatives, positives] = totals;
    // What one more record of a class would add: the share of the other class on the right side of it.
    let mut gradient = vec![0.0; cells.len()];
    let (mut below, mut above) = (0.0, positives);
    let mut area = 0.0;
    for [first, second] in bins {
        let (negative, positive) = (table.counts[first], table.counts[second]);
        above -= positive;
        gradient[second] = (below + 0.5 * negative) / (negatives * positives);
        gradient[first] = (above + 0.5 * positive) / (negatives * positives);
        area += positive * gradient[second];
        below += negative;
    }
    for (cell, gradient) in cells.iter().zip(&mut gradient) {
        *gradient -= area / totals[cell.truth];
    }
    Some(table.fraction(area.clamp(0.0, 1.0), &gradient, negatives.min(positives)))
}

/// The mean precision over the records of the second class; its gradient is numerical.
fn average_precision(cells: &[Cell], table: &Table) -> Option<Estimate> {
    let bins = by_score(cells);
    let second: Vec<f64> = cells.iter().map(|cell| f64::from(u8::from(cell.truth == 1))).collect();
    table.share(&second, &second)?;
    let precision = |counts: &[f64]| {
        let (mut found, mut wrong, mut sum, mut all) = (0.0, 0.0, 0.0, 0.0);
        for [first, second] in bins.iter().rev() {
            found += counts[*second];
            wrong += counts[*first];
            all += counts[*second];
            let (hits, misses) = (f64::max(found, 0.0), f64::max(wrong, 0.0));
            // Noise can leave nothing above a threshold.
            sum += counts[*second] * if hits + misses > 1e-9 { hits / (hits + misses) } else { 1.0 };
        }
        sum / all
    };
    let value = precision(&table.counts).clamp(0.0, 1.0);
    let mut counts = table.counts.clone();
    let gradient: Vec<f64> = (0..counts.len())
        .map(|cell| {
            let (kept, step) = (counts[cell], 0.5);
            counts[cell] = kept + step;
            let up = precision(&counts);
            counts[cell] = kept - step;
            let down = precision(&counts);
            counts[cell] = kept;
            (up - down) / (2.0 * step)
        })
        .collect();
    Some(table.fraction(value, &gradient, table.sum(&second)))
}

/// `sum_b |right_b - confidence_b| / n` over groups `b` of records with similar confidence.
///
/// Noise and sampling make every difference larger. The estimate removes their variance from the squares; the interval reaches down by
/// their largest mean contribution, `sqrt(2 / pi)` standard deviations for each group.
pub(super) fn calibration_error(cells: &[Cell], edges: &[f64], table: &Table, temperature: f64) -> Estimate {
    let classes = 1 + cells.iter().map(|cell| cell.truth).max().unwrap_or(1);
    let surplus = |cell: &Cell| {
        let confidence = 1.0 / (1.0 + (-tempered(cell.top, temperature, classes)).exp());
        f64::from(u8::from(cell.right)) - confidence
    };
    let (mut value, mut sum, mut bias) = (0.0, 0.0, 0.0);
    let mut signed = vec![0.0; cells.len()];
    for group in 0..=edges.len() {
        let weights: Vec<f64> = cells
            .iter()
            .map(|cell| if bin(edges, cell.top) == group { surplus(cell) } else { 0.0 })
            .collect();
        let (difference, variance) = (table.sum(&weights), table.variance(&weights).total());
        value += (difference * difference - variance).max(0.0).sqrt();
        sum += difference.abs();
        bias += (2.0 / std::f64::consts::PI * variance).sqrt();
        signed.iter_mut().zip(weights).for_each(|(signed, weight)| *signed += weight * difference.signum());
    }
    let half = table.variance(&signed).half();
    let (value, low, high) =
        (value / table.slots, (sum - bias - half) / table.slots, (sum + half) / table.slots);
    Estimate {
        value: value.min(1.0),
        low: low.clamp(0.0, value.min(1.0)),
        high: high.clamp(value.min(1.0), 1.0),
    }
}
