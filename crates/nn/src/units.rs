//! Units of privacy: which records belong together, and the bags of a chunk.

use std::borrow::Cow;
use std::ops::Range;

use crate::error::NetworkError;

/// The records of each slot of a data set. A slot is a unit of privacy: all its records form a *bag*, whose gradient is clipped once.
///
/// A record belongs to at most one slot. Records that belong to none are never read in a pass. An empty slot adds nothing.
///
/// ```
/// use sordino_nn::Units;
///
/// let units = Units::new(vec![4, 0, 2], vec![0, 2, 2, 3])?;
/// assert_eq!((units.len(), units.most()), (3, 2));
/// assert_eq!([units.members(0), units.members(1), units.members(2)], [&[4, 0][..], &[], &[2]]);
/// # Ok::<(), sordino_nn::NetworkError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Units {
    members: Vec<usize>,
    starts: Vec<usize>,
    most: usize,
}

impl Units {
    /// Slot `i` has the records `members[starts[i] .. starts[i + 1]]`.
    ///
    /// # Errors
    /// If `starts` does not ascend from 0 to the number of members, or a record belongs to two slots.
    pub fn new(members: Vec<usize>, starts: Vec<usize>) -> Result<Units, NetworkError> {
        let refuse = |problem: String| Err(NetworkError::Records(problem));
        let ends = (starts.first(), starts.last());
        if ends != (Some(&0), Some(&members.len())) || !starts.is_sorted() {
            return refuse(format!(
                "the starts of units must ascend from 0 to the number of members, {}",
                members.len()
            ));
        }
        let mut sorted = members.clone();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return refuse(format!("record {} belongs to two units; a record has one unit", pair[0]));
        }
        let most = starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        Ok(Units { members, starts, most })
    }

    /// The number of slots.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Whether there are no slots.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The records of a slot.
    pub fn members(&self, slot: usize) -> &[usize] {
        &self.members[self.starts[slot]..self.starts[slot + 1]]
    }

    /// The number of records in the largest slot.
    pub fn most(&self) -> usize {
        self.most
    }

    /// The largest record of all slots.
    pub(crate) fn last_record(&self) -> Option<usize> {
        self.members.iter().copied().max()
    }
}

/// How the gradients of the records of a slot become one gradient, which is clipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Combination {
    /// Their sum.
    #[default]
    Sum,
    /// Their sum, divided by their number.
    Mean,
}

/// A record of a chunk. A record that is read several times, as different views, has several copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) record: usize,
    pub(crate) copy: usize,
}

impl Member {
    /// The record itself.
    pub(crate) fn whole(record: usize) -> Member {
        Member { record, copy: 0 }
    }

    /// The number of its stream of random numbers, which no other record or copy has.
    pub(crate) fn stream(self) -> u64 {
        (self.copy as u64) << 48 | self.record as u64
    }
}

/// The bags of a chunk: bag `i` is the records `starts[i] .. starts[i + 1]` of the chunk.
#[derive(Clone, Copy)]
pub(crate) struct Bags<'a> {
    pub(crate) starts: &'a [usize],
    /// The largest number of records in a bag of any chunk. How norms are computed depends on it.
    pub(crate) most: usize,
}

impl<'a> Bags<'a> {
    /// The number of bags.
    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The number of records.
    pub(crate) fn records(&self) -> usize {
        self.starts[self.len()]
    }

    /// The records of a bag.
    pub(crate) fn members(&self, bag: usize) -> Range<usize> {
        self.starts[bag]..self.starts[bag + 1]
    }

    /// The records of each bag.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<usize>> + use<'a> {
        self.starts.windows(2).map(|pair| pair[0]..pair[1])
    }

    /// The weight of each record: that of its bag.
    pub(crate) fn weights_of_records<'w>(&self, weights: &'w [f32]) -> Cow<'w, [f32]> {
        match self.len() == self.records() {
            true => Cow::Borrowed(weights),
            false => {
                let one = |(bag, weight): (Range<usize>, &f32)| std::iter::repeat_n(*weight, bag.len());
                Cow::Owned(self.iter().zip(weights).flat_map(one).collect())
            }
        }
    }

    /// Stretches of consecutive bags of equal size: the size, and the first record of each bag. The bags of a chunk are sorted by size, so there
    /// are few stretches.
    pub(crate) fn by_size(&self) -> Vec<(usize, Vec<usize>)> {
        let mut sizes: Vec<(usize, Vec<usize>)> = Vec::new();
        for bag in self.iter() {
            match sizes.last_mut().filter(|(size, _)| *size == bag.len()) {
                Some((_, firsts)) => firsts.push(bag.start),
                None => sizes.push((bag.len(), vec![bag.start])),
            }
        }
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_belongs_to_one_unit() {
        let problem = |members: &[usize], starts: &[usize]| {
            Units::new(members.to_vec(), starts.to_vec()).err().map(|error| error.to_string())
        };
        assert_eq!(
            problem(&[3, 1, 3], &[0, 1, 3]).as_deref(),
            Some("record 3 belongs to two units; a record has one unit")
        );
        for starts in [&[][..], &[0], &[0, 2], &[1, 3], &[0, 3, 2, 3], &[0, 4]] {
            let problem = problem(&[3, 1, 2], starts);
            assert_eq!(
                problem.as_deref(),
                Some("the starts of units must ascend from 0 to the number of members, 3"),
                "{starts:?}"
            );
        }
        assert_eq!(Units::new(Vec::new(), vec![0]).map(|units| (units.len(), units.most())), Ok((0, 0)));
    }

    #[test]
    fn bags_of_equal_size_are_taken_together() {
        let bags = Bags { starts: &[0, 1, 2, 4, 6, 7], most: 2 };
        assert_eq!(bags.by_size(), [(1, vec![0, 1]), (2, vec![2, 4]), (1, vec![6])]);
        assert_eq!(*bags.weights_of_records(&[1.0, 2.0, 3.0, 4.0, 5.0]), [1.0, 2.0, 3.0, 3.0, 4.0, 4.0, 5.0]);
    }
}
