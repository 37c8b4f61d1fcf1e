//! The privacy profile of a selection, from the privacy profile of one run.
//!
//! **Theorem.** Let `K` be the number of runs, `f(x) = E[x^K]` and `w(c) = f'(1 - c) / f'(1)`. Let `delta(.)` be an upper bound on the
//! privacy profile of one run, in both directions, and `T(c) = min over e of e^e c + delta(e)`, at most 1. Let
//!
//! ```text
//! H(u) = sup over c in [0, 1] of (w(c) - w(T(c)) u)_+ .
//! ```
//!
//! `H` is convex and falls to 0, so it is a mixture `H(u) = sum_j b_j (t_j - u)_+` with `b_j >= 0` (or an integral of this form). Then for
//! every `epsilon >= 0` the selection is `(epsilon, delta')`-DP with
//!
//! ```text
//! delta' = E[K] sum_j b_j t_j delta(epsilon - ln t_j).
//! ```
//!
//! *Proof.* Let `Q` and `Q'` be the distributions of the output of one run (score, model) on two neighbouring data sets. Append an
//! independent uniform number to each output, and compare equal scores by it: ties then have probability 0, and the privacy profile
//! is unchanged. (Any rule for ties that does not use the data or the number of runs is such a comparison.) The probability that all
//! runs are at most as good as `y`, and that there is a run, is `f(Q(<= y)) - f(0)`. Hence the selected output has the density
//! `f'(Q(<= y))` with respect to `Q`. If there is no run, the output is "nothing" with the same probability `f(0)` on both data
//! sets, which adds nothing to delta for `epsilon >= 0`.
//!
//! Let `c = Q(> y)` and `c' = Q'(> y)`. The event "better than y" has `c' <= T(c)`, and `f'` grows because its coefficients are not negative.
//! With `v = dQ'/dQ`,
//!
//! ```text
//! P(S) - e^epsilon P'(S) <= int (f'(1 - c) - e^epsilon v f'(1 - c'))_+ dQ
//!                        <= E[K] int (w(c) - e^epsilon v w(T(c)))_+ dQ  <=  E[K] int H(e^epsilon v) dQ
//! ```
//!
//! because `f'(1) = E[K]`. (Where `dQ` is 0, the integrand of `P(S)` is 0 as well.) Last,
//! `int (t - e^epsilon v)_+ dQ = t sup_S [Q(S) - e^(epsilon - ln t) Q'(S)] <= t delta(epsilon - ln t)`. ∎
//!
//! **Corollary.** For the truncated negative binomial, `w(c) = (1 + c (1-gamma)/gamma)^-(1+eta)`. Let `e` solve
//! `delta(e) = gamma/(1-gamma) (exp(e) - 1)`. Then `1 + T(c) (1-gamma)/gamma <= exp(e) (1 + c (1-gamma)/gamma)`, hence
//! `H(u) <= (1 - exp(-(1+eta) e) u)_+` and `delta' <= E[K] delta(epsilon - (1+eta) e)`: the selection costs at most the epsilon of one run at
//! `delta / E[K]`, plus `(1+eta) e`. For pure `epsilon`-DP this is Papernot and Steinke's `(2 + eta) epsilon` at most.
//!
//! The supremum over `c` is taken over cells `[c_i, c_(i+1)]`, with `w` at the lower end and `T` at the upper end, which bounds it from above.

use super::{curve::Curve, runs::Runs};
use crate::Delta;

/// The ratio of the ends of a cell of shares `c`.
const CELL: f64 = 1.003;
/// The upper end of the first cell.
const FIRST_CELL: f64 = 1e-12;
/// The relative margin for rounding.
const MARGIN: f64 = 1e-7;

/// One term of the mixture: `weight (t - u)_+` with `weight` including E[K] and `t`, and the logarithm of `t`.
struct Term {
    ln_t: f64,
    weight: f64,
}

/// The profile of a selection.
pub(super) struct Selection<'a> {
    one_run: &'a Curve,
    terms: Vec<Term>,
    /// What is left of `E[K] H(u)` for large `u`: above 0 if `w(T(c))` is too small for a floating-point number.
    rest: f64,
}

impl<'a> Selection<'a> {
    pub(super) fn new(one_run: &'a Curve, runs: Runs) -> Self {
        let hull = upper_hull(lines(one_run, runs));
        let rest = runs.mean() * hull.last().map_or(1.0, |(a, _)| *a);
        Self { one_run, terms: mixture(&hull, runs.mean()), rest }
    }

    /// An upper bound on delta at an epsilon of at least 0.
    pub(super) fn delta(&self, epsilon: f64) -> f64 {
        let terms = self.terms.iter().map(|term| term.weight * self.one_run.delta(epsilon - term.ln_t));
        (terms.sum::<f64>() + self.rest) * (1.0 + MARGIN)
    }

    /// The least epsilon whose delta is within the given one; none if there is no finite one.
    pub(super) fn epsilon(&self, delta: Delta) -> Option<f64> {
        let enough = |epsilon: f64| self.delta(epsilon) <= delta.get();
        if enough(0.0) {
            return Some(0.0);
        }
        let mut high = 1.0;
        while !enough(high) {
            high *= 2.0;
            if high > 1e6 {
                return None;
            }
        }
        let mut low = 0.0;
        while high - low > 1e-7 * high {
            let mid = 0.5 * (low + high);
            if enough(mid) { high = mid } else { low = mid }
        }
        Some(high)
    }
}

/// Lines `(a, b)` such that `H(u)` is at most the largest of `a - b u` and 0. Both fall with the share `c`.
fn lines(one_run: &Curve, runs: Runs) -> Vec<(f64, f64)> {
    let mut cells = vec![(0.0, FIRST_CELL)];
    while let Some(&(_, end)) = cells.last().filter(|(_, end)| *end < 1.0) {
        cells.push((end, (end * CELL).min(1.0)));
    }
    cells.into_iter().map(|(low, high)| (runs.weight(low), runs.weight(one_run.reach(high)))).collect()
}

/// The lines that form the upper envelope, for `u` growing from 0. Both numbers of a line fall.
fn upper_hull(lines: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let mut hull: Vec<(f64, f64)> = Vec::new();
    // The line of constant 0 is the last one.
    for line in lines.into_iter().chain([(0.0, 0.0)]) {
        // A line that does not rise above the last one at any u is the same or falls faster.
        if hull.last().is_some_and(|last| line.1 >= last.1) {
            if hull.last().is_some_and(|last| line.0 <= last.0) {
                continue;
            }
            hull.pop();
        }
        while let [.., before, last] = hull[..]
            && crossing(before, line) <= crossing(before, last)
        {
            hull.pop();
        }
        hull.push(line);
    }
    hull
}

/// The `u` at which the second line, which falls more slowly, overtakes the first.
fn crossing((a, b): (f64, f64), (later_a, later_b): (f64, f64)) -> f64 {
    (a - later_a) / (b - later_b)
}

fn mixture(hull: &[(f64, f64)], mean: f64) -> Vec<Term> {
    hull.windows(2)
        .map(|pair| {
            let t = crossing(pair[0], pair[1]);
            Term { ln_t: t.ln(), weight: mean * (pair[0].1 - pair[1].1) * t }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Epsilon;

    fn largest(lines: &[(f64, f64)], u: f64) -> f64 {
        lines.iter().map(|(a, b)| a - b * u).fold(0.0, f64::max)
    }

    #[test]
    fn the_mixture_is_the_largest_line() {
        for runs in [
            Runs::negative_binomial(-0.5, 20.0).unwrap(),
            Runs::negative_binomial(1.0, 5.0).unwrap(),
            Runs::poisson(9.0).unwrap(),
        ] {
            for e in [0.3, 2.0] {
                let curve = Curve::pure(Epsilon::new(e).unwrap());
                let lines = lines(&curve, runs);
                let terms = mixture(&upper_hull(lines.clone()), 1.0);
                assert!(terms.iter().all(|term| term.weight >= 0.0));
                for i in 0..400 {
                    let u = 0.02 * f64::from(i);
                    let sum: f64 = terms
                        .iter()
                        .map(|term| term.weight / term.ln_t.exp() * (term.ln_t.exp() - u).max(0.0))
                        .sum();
                    let exact = largest(&lines, u);
                    assert!((sum - exact).abs() < 1e-9, "{runs:?} {e} {u}: {sum} {exact}");
                }
            }
        }
    }

    #[test]
    fn the_corollary_is_never_better() {
        let curve = Curve::pure(Epsilon::new(1.5).unwrap());
        for (eta, mean) in [(-0.5, 10.0), (0.0, 3.0), (1.0, 50.0)] {
            let runs = Runs::negative_binomial(eta, mean).unwrap();
            let Runs::TruncatedNegativeBinomial { gamma, .. } = runs else { unreachable!() };
            let (mut low, mut high) = (0.0_f64, 1.5_f64);
            for _ in 0..100 {
                let mid = 0.5 * (low + high);
                if curve.delta(mid) <= gamma / (1.0 - gamma) * mid.exp_m1() { high = mid } else { low = mid }
            }
            let selection = Selection::new(&curve, runs);
            for epsilon in [0.5, 1.5, 2.0, 2.9] {
                let simple = runs.mean() * curve.delta(epsilon - (1.0 + eta) * high);
                let got = selection.delta(epsilon);
                // The cells cost up to (1 + eta) ln(CELL) in epsilon.
                assert!(got <= simple + 0.02 * runs.mean(), "{eta} {epsilon}: {got} {simple}");
            }
        }
    }
}
