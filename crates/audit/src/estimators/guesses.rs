//! Guesses of membership from scores.

use std::cmp::Ordering;

use crate::TradeOffPoint;

use super::binomial::real;

/// The score of a canary, and whether the canary was a member of the training data. Members are expected to have higher scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scored {
    /// The score that the attacker computed. NaN always counts as a wrong guess.
    pub score: f64,
    /// Whether the canary was a member.
    pub member: bool,
}

/// How many canaries to guess: the highest scores as members and the lowest scores as non-members. There is no guess for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guesses {
    /// Number of highest scores that are guessed to be members.
    pub members: u64,
    /// Number of lowest scores that are guessed to be non-members.
    pub non_members: u64,
}

impl Guesses {
    /// The same number of members and of non-members.
    pub fn both(count: u64) -> Self {
        Self { members: count, non_members: count }
    }

    /// A fixed list for an attack whose strength is unknown: 4 %, 12 % and 36 % of the canaries at each end.
    pub fn list(canaries: u64) -> Vec<Self> {
        [4, 12, 36].map(|percent| Self::both((canaries * percent / 100).max(1))).to_vec()
    }
}

/// The number of canaries, of guesses, and of correct guesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) canaries: u64,
    pub(super) guesses: u64,
    pub(super) correct: u64,
}

/// Memberships in the order of falling scores.
///
/// Ties and NaN count against the attacker: of equal scores, those of non-members come first; a NaN is the highest score of a non-member
/// and the lowest score of a member. So no order of the input can help the attacker.
pub(super) struct Ranking {
    /// `members_above[k]` is the number of members among the `k` highest scores.
    members_above: Vec<u64>,
}

impl Ranking {
    pub(super) fn new(scores: &[Scored]) -> Self {
        let mut order: Vec<(f64, bool)> = scores.iter().map(|s| (worst_if_nan(*s), s.member)).collect();
        order.sort_unstable_by(|a, b| b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal).then(a.1.cmp(&b.1)));
        let mut members_above = vec![0];
        let mut count = 0;
        for (_, member) in order {
            count += u64::from(member);
            members_above.push(count);
        }
        Self { members_above }
    }

    fn canaries(&self) -> u64 {
        self.members_above.len() as u64 - 1
    }

    fn members(&self) -> u64 {
        self.above(self.canaries())
    }

    fn above(&self, rank: u64) -> u64 {
        self.members_above[usize::try_from(rank).expect("a rank is at most the length")]
    }

    /// Counts correct guesses. No canary is guessed twice.
    pub(super) fn tally(&self, guesses: Guesses) -> Tally {
        let canaries = self.canaries();
        let high = guesses.members.min(canaries);
        let low = guesses.non_members.min(canaries - high);
        let members_in_low = self.members() - self.above(canaries - low);
        Tally { canaries, guesses: high + low, correct: self.above(high) + low - members_in_low }
    }

    /// The attacker's rates if the `rank` highest scores are guessed to be members. None if all canaries are members, or none is.
    pub(super) fn point(&self, rank: u64) -> Option<TradeOffPoint> {
        let rank = rank.min(self.canaries());
        let (members, found) = (self.members(), self.above(rank));
        let non_members = self.canaries() - members;
        (members > 0 && non_members > 0).then(|| TradeOffPoint {
            false_positive_rate: real(rank - found) / real(non_members),
            true_positive_rate: real(found) / real(members),
        })
    }

    /// The points at both ends of each entry of a list of guesses, in the order of rising false-positive rates.
    pub(super) fn points(&self, list: &[Guesses]) -> Vec<TradeOffPoint> {
        let canaries = self.canaries();
        let mut ranks: Vec<u64> =
            list.iter().flat_map(|g| [g.members, canaries.saturating_sub(g.non_members)]).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks.into_iter().filter_map(|rank| self.point(rank)).collect()
    }
}

/// The score of a canary, or the score that is worst for the attacker.
pub(super) fn worst_if_nan(scored: Scored) -> f64 {
    match (scored.score.is_nan(), scored.member) {
        (false, _) => scored.score,
        (true, false) => f64::INFINITY,
        (true, true) => f64::NEG_INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scored(list: &[(f64, bool)]) -> Vec<Scored> {
        list.iter().map(|&(score, member)| Scored { score, member }).collect()
    }

    #[test]
    fn counts_correct_guesses_at_both_ends() {
        let scores =
            scored(&[(5.0, true), (4.0, false), (3.0, true), (2.0, true), (1.0, false), (0.0, true)]);
        let ranking = Ranking::new(&scores);
        let tally = |members, non_members| {
            let tally = ranking.tally(Guesses { members, non_members });
            (tally.canaries, tally.guesses, tally.correct)
        };
        assert_eq!(tally(1, 1), (6, 2, 1));
        assert_eq!(tally(2, 2), (6, 4, 2));
        assert_eq!(tally(3, 0), (6, 3, 2));
        assert_eq!(tally(0, 2), (6, 2, 1));
        // No canary is guessed twice.
        assert_eq!(tally(4, 4), (6, 6, 4));
        assert_eq!(tally(9, 9), (6, 6, 4));
    }

    #[test]
    fn ties_and_nan_count_against_the_attacker() {
        let mut scores = scored(&[(1.0, true), (1.0, false), (1.0, true), (1.0, false)]);
        for _ in 0..2 {
            let ranking = Ranking::new(&scores);
            assert_eq!(ranking.tally(Guesses::both(2)).correct, 0);
            assert_eq!(ranking.tally(Guesses { members: 3, non_members: 0 }).correct, 1);
            scores.reverse();
        }
        let scores = scored(&[(f64::NAN, true), (f64::NAN, false), (0.0, false), (-0.0, true)]);
        assert_eq!(Ranking::new(&scores).tally(Guesses::both(2)).correct, 0);
    }

    #[test]
    fn points_are_rates_of_members_and_of_non_members() {
        let scores =
            scored(&[(5.0, true), (4.0, false), (3.0, true), (2.0, false), (1.0, false), (0.0, false)]);
        let points = Ranking::new(&scores).points(&[Guesses::both(2), Guesses::both(2)]);
        let rates: Vec<_> = points.iter().map(|p| (p.false_positive_rate, p.true_positive_rate)).collect();
        assert_eq!(rates, [(0.25, 0.5), (0.5, 1.0)]);
        assert!(Ranking::new(&scored(&[(1.0, true)])).points(&[Guesses::both(1)]).is_empty());
    }

    #[test]
    fn an_empty_list_has_no_guesses() {
        let ranking = Ranking::new(&[]);
        assert_eq!(ranking.tally(Guesses::both(7)), Tally { canaries: 0, guesses: 0, correct: 0 });
        assert!(ranking.points(&Guesses::list(0)).is_empty());
    }
}
