//! How much of a record's gradient enters a sum.

use sordino_accounting::ClipNorm;

use crate::PrivacyError;

/// The part of a bound that is reserved for the rounding of weights to single precision, of norms, and of sums within a record.
const MARGIN: f64 = 1.0 / 1024.0;

/// The largest weight. A gradient so small that it would need a larger one is mostly rounding error.
const MAX_WEIGHT: f64 = 1e12;

/// The largest number of pairs in a table of weights.
const MAX_PAIRS: usize = 1 << 16;

/// A rule that bounds what each record adds to a sum.
///
/// A rule is data, not code, so that it cannot store the norms it is applied to. For every rule the base enforces
/// `weight <= bound / norm`, minus a thousandth for rounding. A record adds nothing if its norm is 0 or not finite.
///
/// | rule | weight of a gradient with norm `n` | sensitivity of the sum |
/// | --- | --- | --- |
/// | [`flat`](Self::flat) | `min(1, C / n)` | `C` |
/// | [`per_layer`](Self::per_layer) | `min(1, C_l / n_l)` for each layer `l` | `sqrt(sum_l C_l^2)` |
/// | either, [`normalising`](Self::normalising) | `C / (r + n)` | the same |
/// | either, [`weighted_by`](Self::weighted_by) a table | the table's value at `n`, at most `C / n` | the same |
///
/// **References.** Abadi et al. 2016 (flat); McMahan et al. 2018 (per layer); Yang et al. 2022 (normalising, DP-NSGD);
/// Bu et al. 2023 (automatic clipping, `r` = 0.01).
#[derive(Debug, Clone, PartialEq)]
pub struct ClipRule {
    bounds: Bounds,
    weighting: Weighting,
}

#[derive(Debug, Clone, PartialEq)]
enum Bounds {
    Flat(f64),
    PerLayer(Vec<f64>),
}

/// The weight that a rule requests, as a function of the norm.
#[derive(Debug, Clone, PartialEq)]
enum Weighting {
    Clipping,
    Normalising { regulariser: f64 },
    Table(Vec<(f64, f64)>),
}

impl ClipRule {
    /// Clips the whole gradient to a norm.
    ///
    /// # Errors
    /// A norm outside [1e-12, 1e12], the range that single precision supports.
    pub fn flat(bound: ClipNorm) -> Result<Self, PrivacyError> {
        Ok(Self { bounds: Bounds::Flat(checked(bound)?), weighting: Weighting::Clipping })
    }

    /// Clips each layer to its own norm.
    ///
    /// # Errors
    /// As [`flat`](Self::flat); no layers.
    pub fn per_layer(bounds: &[ClipNorm]) -> Result<Self, PrivacyError> {
        if bounds.is_empty() {
            return refused("per-layer clipping needs a norm for each layer, got none".to_owned());
        }
        let bounds = bounds.iter().map(|&bound| checked(bound)).collect::<Result<_, _>>()?;
        Ok(Self { bounds: Bounds::PerLayer(bounds), weighting: Weighting::Clipping })
    }

    /// Scales every gradient, even a small one, to just below the bound: weight `C / (r + n)`.
    ///
    /// # Errors
    /// A regulariser that is negative or not finite.
    pub fn normalising(self, regulariser: f64) -> Result<Self, PrivacyError> {
        match regulariser >= 0.0 && regulariser.is_finite() {
            true => Ok(Self { weighting: Weighting::Normalising { regulariser }, ..self }),
            false => refused(format!("the regulariser must be finite and at least 0, got {regulariser}")),
        }
    }

    /// Takes weights from a table of (norm, weight) pairs: linear interpolation between pairs, constant before the first pair and
    /// after the last. With bounds for each layer, every layer looks up its own norm.
    ///
    /// Weights above `C / n` are reduced to `C / n`, so that the sensitivity is the same for every table.
    ///
    /// # Errors
    /// A table with no pairs or more than 65,536; norms that are negative, not finite, or not strictly ascending; weights that are
    /// negative or not finite.
    pub fn weighted_by(self, table: &[(f64, f64)]) -> Result<Self, PrivacyError> {
        if !(1..=MAX_PAIRS).contains(&table.len()) {
            return refused(format!("a table of weights has 1 to {MAX_PAIRS} pairs, got {}", table.len()));
        }
        for value in table.iter().flat_map(|(norm, weight)| [norm, weight]) {
            if !(*value >= 0.0 && value.is_finite()) {
                return refused(format!("norms and weights must be finite and at least 0, got {value}"));
            }
        }
        if let Some(pair) = table.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            return refused(format!("norms must ascend strictly, got {} before {}", pair[0].0, pair[1].0));
        }
        Ok(Self { weighting: Weighting::Table(table.to_vec()), ..self })
    }

    /// How far the sum can move when one record is removed.
    pub fn sensitivity(&self) -> f64 {
        match &self.bounds {
            Bounds::Flat(bound) => *bound,
            Bounds::PerLayer(bounds) => bounds.iter().map(|bound| bound * bound).sum::<f64>().sqrt(),
        }
    }

    /// Checks that there is a bound for each layer.
    pub(crate) fn fits(&self, layers: usize) -> Result<(), PrivacyError> {
        match &self.bounds {
            Bounds::PerLayer(bounds) if bounds.len() != layers => refused(format!(
                "the model has {layers} trained layers, but the rule has {} clipping norms",
                bounds.len()
            )),
            _ => Ok(()),
        }
    }

    /// Sets the weights of a record whose layers have these norms.
    pub(crate) fn weigh(&self, norms: &[f64], weights: &mut [f32]) {
        let total = total_norm(norms);
        for (layer, weight) in weights.iter_mut().enumerate() {
            let (norm, bound) = self.measure(norms, layer, total);
            *weight = self.weight(norm, bound);
        }
    }

    /// Sets the weights of a record in the first sum, and in the second sum the weights of the residual that the first leaves,
    /// bounded by `residual`.
    pub(crate) fn weigh_with_residual(&self, residual: &Self, norms: &[f64], weights: &mut [f32]) {
        let (clipped, left) = weights.split_at_mut(norms.len());
        self.weigh(norms, clipped);
        let total = total_norm(norms);
        for (layer, (clipped, left)) in clipped.iter().zip(left).enumerate() {
            let (norm, bound) = residual.measure(norms, layer, total);
            *left = bounded(1.0 - f64::from(*clipped), norm, bound);
        }
    }

    /// The norm that determines the weight of a layer, and its bound.
    fn measure(&self, norms: &[f64], layer: usize, total: f64) -> (f64, f64) {
        match &self.bounds {
            Bounds::Flat(bound) => (total, *bound),
            Bounds::PerLayer(bounds) => (norms[layer], bounds[layer]),
        }
    }

    fn weight(&self, norm: f64, bound: f64) -> f32 {
        let wanted = match &self.weighting {
            Weighting::Clipping => 1.0,
            Weighting::Normalising { regulariser } => bound / (regulariser + norm),
            Weighting::Table(pairs) => interpolated(pairs, norm),
        };
        bounded(wanted, norm, bound)
    }
}

/// The norm over all layers.
pub(crate) fn total_norm(norms: &[f64]) -> f64 {
    norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt()
}

/// The weight of a table at this norm.
fn interpolated(pairs: &[(f64, f64)], norm: f64) -> f64 {
    let after = pairs.partition_point(|(at, _)| *at <= norm);
    let (left, left_weight) = pairs[after.saturating_sub(1)];
    let (right, right_weight) = pairs[after.min(pairs.len() - 1)];
    match left < norm && norm < right {
        true => left_weight + (right_weight - left_weight) * ((norm - left) / (right - left)),
        false => left_weight,
    }
}

/// The weight that a rule requests, or the largest that is permitted, rounded down.
fn bounded(wanted: f64, norm: f64, bound: f64) -> f32 {
    let most = bound * (1.0 - MARGIN) / norm;
    // A NaN in any argument gives 0.
    if !(norm > 0.0 && norm.is_finite() && wanted >= 0.0 && most >= 0.0) {
        return 0.0;
    }
    let weight = wanted.min(most).min(MAX_WEIGHT);
    #[expect(clippy::cast_possible_truncation, reason = "rounded down below")]
    let rounded = weight as f32;
    if f64::from(rounded) > weight { rounded.next_down() } else { rounded }
}

fn checked(bound: ClipNorm) -> Result<f64, PrivacyError> {
    match (1e-12..=1e12).contains(&bound.get()) {
        true => Ok(bound.get()),
        false => refused(format!("clipping norms must be between 1e-12 and 1e12, got {bound}")),
    }
}

fn refused<T>(problem: String) -> Result<T, PrivacyError> {
    Err(PrivacyError::Rule(problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn norm(value: f64) -> ClipNorm {
        ClipNorm::new(value).unwrap()
    }

    #[test]
    fn no_rule_lets_a_record_add_more_than_its_bound() {
        let edges = [0.0, 1e-300, 1e-20, 1e-3, 0.5, 1.0, 1.0 + 1e-9, 3.0, 1e18, f64::MAX, f64::INFINITY];
        for bound in [1e-12, 0.1, 1.0, 7.3, 1e12] {
            let flat = ClipRule::flat(norm(bound)).unwrap();
            let table = |pairs: &[(f64, f64)]| flat.clone().weighted_by(pairs).unwrap();
            let rules = [
                flat.clone(),
                flat.clone().normalising(0.0).unwrap(),
                flat.clone().normalising(0.01).unwrap(),
                table(&[(0.0, f64::MAX)]),
                table(&[(0.5, 0.0), (1.0, 1e300)]),
                table(&[(0.0, f64::MAX), (f64::MAX, f64::MAX)]),
            ];
            for (rule, n) in rules.iter().flat_map(|rule| edges.map(|n| (rule, n))) {
                let added = f64::from(rule.weight(n, bound)) * n;
                // An infinite norm times a weight of 0 is NaN; the weight is what counts.
                assert!(
                    added <= bound * (1.0 - MARGIN) || rule.weight(n, bound) == 0.0,
                    "{rule:?} adds {added} of {n}"
                );
            }
            assert_eq!(rules[0].weight(f64::NAN, bound), 0.0);
        }
    }

    #[test]
    fn every_weight_is_bounded_whatever_the_rule_asks_for() {
        for wanted in [-1.0, 0.0, 1.0, 1e300, f64::INFINITY, f64::NAN] {
            for n in [1e-6, 1.0, 1e6] {
                let weight = f64::from(bounded(wanted, n, 0.5));
                assert!((0.0..=0.5 / n).contains(&weight), "{wanted} at {n}: {weight}");
            }
        }
    }

    #[test]
    fn clipping_keeps_small_gradients_and_normalising_enlarges_them() {
        let rule = ClipRule::flat(norm(1.0)).unwrap();
        assert_eq!(rule.weight(0.25, 1.0), 1.0);
        let added = f64::from(rule.normalising(0.01).unwrap().weight(0.25, 1.0)) * 0.25;
        assert!((added - 0.25 / 0.26).abs() < 1e-6, "{added}");
    }

    #[test]
    fn a_table_is_interpolated_between_its_pairs_and_constant_outside() {
        let rule = ClipRule::flat(norm(1e6)).unwrap().weighted_by(&[(1.0, 0.5), (3.0, 0.25), (4.0, 2.0)]);
        let rule = rule.unwrap();
        for (n, expected) in
            [(0.1, 0.5), (1.0, 0.5), (2.0, 0.375), (3.0, 0.25), (3.5, 1.125), (4.0, 2.0), (9.0, 2.0)]
        {
            assert_eq!(rule.weight(n, 1e6), expected, "{n}");
        }
        let one = ClipRule::flat(norm(1.0)).unwrap().weighted_by(&[(2.0, 0.125)]).unwrap();
        assert_eq!([0.5, 2.0, 3.0].map(|n| one.weight(n, 1.0)), [0.125; 3]);
    }

    /// The table of `C / (n + r / (n + r))`, which is `psac`, agrees with the formula.
    #[test]
    fn a_table_stands_for_a_curve() {
        let curve = |n: f64| 1.0 / (n + 0.1 / (n + 0.1));
        let pairs: Vec<(f64, f64)> =
            (0..4000).map(|i| 1e-3 * 1.005_f64.powi(i)).map(|n| (n, curve(n))).collect();
        let rule = ClipRule::flat(norm(1.0)).unwrap().weighted_by(&pairs).unwrap();
        for n in [0.01, 0.3, 1.0, 7.7, 300.0] {
            assert!(
                (f64::from(rule.weight(n, 1.0)) / curve(n).min((1.0 - MARGIN) / n) - 1.0).abs() < 1e-4,
                "{n}"
            );
        }
    }

    #[test]
    fn the_sensitivity_of_per_layer_clipping_is_the_norm_of_its_bounds() {
        let rule = ClipRule::per_layer(&[norm(3.0), norm(4.0)]).unwrap();
        assert!((rule.sensitivity() - 5.0).abs() < 1e-12);
        assert!(rule.fits(2).is_ok());
        assert_eq!(
            rule.fits(3).unwrap_err().to_string(),
            "the model has 3 trained layers, but the rule has 2 clipping norms"
        );
    }

    #[test]
    fn invalid_rules_are_refused_with_their_value() {
        let message = |rule: Result<ClipRule, PrivacyError>| rule.unwrap_err().to_string();
        assert!(message(ClipRule::flat(norm(1e-20))).contains("got 1e-20"));
        assert!(message(ClipRule::per_layer(&[])).contains("got none"));
        let flat = || ClipRule::flat(norm(1.0)).unwrap();
        assert!(message(flat().normalising(-1.0)).contains("got -1"));
        for (table, problem) in [
            (vec![], "1 to 65536 pairs, got 0"),
            (vec![(1.0, 1.0); 65537], "got 65537"),
            (vec![(-1.0, 1.0)], "got -1"),
            (vec![(f64::NAN, 1.0)], "got NaN"),
            (vec![(1.0, -0.5)], "got -0.5"),
            (vec![(1.0, f64::INFINITY)], "got inf"),
            (vec![(1.0, 1.0), (1.0, 2.0)], "got 1 before 1"),
            (vec![(0.0, 1.0), (2.0, 1.0), (1.5, 2.0)], "got 2 before 1.5"),
        ] {
            let message = message(flat().weighted_by(&table));
            assert!(message.contains(problem), "{message}");
        }
    }
}
