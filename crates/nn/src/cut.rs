//! How a batch is cut into pieces that are added up in single precision.
//!
//! A sum in single precision depends on which records are added up together. If pieces were cut by counting the records of a batch,
//! one record more would shift all later ones into other pieces and change the rounding of all of them. So pieces belong to ranges of
//! slots (places in the data set): the slots are halved until a range has few enough chosen records, and those are cut into two equal
//! pieces.
//!
//! **Guarantees.** For two batches that differ in one slot, all pieces are the same but for those of one range, which holds at most
//! `2 most + 1` chosen records. (A range that does not contain the slot has the same records in both. Of those that do, let R be the largest
//! that is not halved in both batches. In one of them it has at most `2 most` records, hence at most one more in the other, and everything
//! outside of R is cut alike.) Pieces depend neither on the number of workers nor on the order in which they are computed.

use std::ops::Range;

/// Cuts the records chosen from `slots` slots, in ascending order, into pieces of at most `most` records; a piece is a range of places
/// in `chosen`.
pub(crate) fn pieces(chosen: &[usize], slots: usize, most: usize) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    halve(chosen, 0..slots, 0..chosen.len(), most, &mut pieces);
    pieces
}

fn halve(
    chosen: &[usize],
    slots: Range<usize>,
    places: Range<usize>,
    most: usize,
    pieces: &mut Vec<Range<usize>>,
) {
    let count = places.len();
    // A slot that was chosen many times cannot be halved; its records are cut all the same.
    if count <= 2 * most || slots.len() <= 1 {
        let number = count.div_ceil(most).max(count.min(2));
        let border = |index: usize| places.start + count * index / number;
        return pieces.extend((0..number).map(|index| border(index)..border(index + 1)));
    }
    let middle = slots.start + slots.len() / 2;
    let split = places.start + chosen[places.clone()].partition_point(|slot| *slot < middle);
    halve(chosen, slots.start..middle, places.start..split, most, pieces);
    halve(chosen, middle..slots.end, split..places.end, most, pieces);
}

/// Deals pieces to workers, each to the one that has the fewest records.
pub(crate) fn deal(pieces: Vec<Range<usize>>, workers: usize) -> Vec<Vec<Range<usize>>> {
    let mut hands = vec![(0, Vec::new()); workers];
    for piece in pieces {
        let fewest = hands.iter_mut().min_by_key(|(records, _)| *records).expect("at least one worker");
        fewest.0 += piece.len();
        fewest.1.push(piece);
    }
    hands.into_iter().map(|(_, pieces)| pieces).collect()
}

/// How far the sums of two batches that differ in one record can be apart, beyond what that record adds, because of rounding to single
/// precision; relative to the bound on what a record adds. The flags say whether some layers add records up one after another, and whether some
/// do so in [groups](GROUP).
///
/// An addition is off by at most `u = 2^-24` of its result. A sum over `n` records, each of norm at most 1, has at most norm `n`, so adding `n` records one
/// after another is off by at most `u (1 + 2 + ... + n)`. In groups of `g` it is off by `u` times `n (g + 1) / 2` within the groups and
/// `g (1 + 2 + ... + n / g)` over them. (Layers may be added up in different ways. In each way record `i` takes part in `k_i` additions, and the
/// bounds are sums of the `k_i`; over layers of one network the larger `k_i` counts, which is at most the sum of both.) By the guarantee
/// above the two batches differ in pieces with at most `2 most + 1` records each.
pub(crate) fn rounding(most: usize, sequential: bool, grouped: bool) -> f64 {
    const UNIT: f64 = 1.0 / (1 << 24) as f64;
    let (n, g) = ((most + 1) as f64, GROUP as f64);
    let groups = (n / g).ceil();
    let one_by_one = if sequential { n * (n + 1.0) / 2.0 } else { 0.0 };
    let by_group = if grouped { n * (g + 1.0) / 2.0 + g * groups * (groups + 1.0) / 2.0 } else { 0.0 };
    // Two pieces, in each of two batches.
    4.0 * UNIT * (one_by_one + by_group)
}

/// Records with a single row that are added up by themselves, so that rounding errors grow with the number of such groups and not
/// with that of records.
pub(crate) const GROUP: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(chosen: &[usize], slots: usize, most: usize) -> Vec<Vec<usize>> {
        let pieces = pieces(chosen, slots, most);
        assert_eq!(pieces.iter().map(Range::len).sum::<usize>(), chosen.len());
        assert!(pieces.windows(2).all(|pair| pair[0].end == pair[1].start));
        pieces.into_iter().map(|piece| chosen[piece].to_vec()).collect()
    }

    /// Every record left out of many batches: what changes holds few records.
    #[test]
    fn leaving_out_a_record_changes_one_range_only() {
        let mut state = 1_u64;
        let mut coin = |share: f64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64) < share * (1_u64 << 53) as f64
        };
        for (slots, share, most) in
            [(1000, 1.0, 7), (1000, 0.3, 7), (777, 0.97, 16), (5000, 0.02, 4), (64, 1.0, 1)]
        {
            let chosen: Vec<usize> = (0..slots).filter(|_| coin(share)).collect();
            let whole = sets(&chosen, slots, most);
            assert!(whole.iter().all(|piece| piece.len() <= most && !piece.is_empty()));
            for left_out in 0..chosen.len() {
                let mut rest = chosen.clone();
                rest.remove(left_out);
                let others = sets(&rest, slots, most);
                let only_in = |these: &[Vec<usize>], those: &[Vec<usize>]| {
                    these.iter().filter(|piece| !those.contains(piece)).map(Vec::len).sum::<usize>()
                };
                assert!(only_in(&whole, &others) <= 2 * most + 1);
                assert!(only_in(&others, &whole) <= 2 * most);
            }
        }
    }

    #[test]
    fn small_and_odd_batches_are_cut_as_well() {
        assert!(pieces(&[], 10, 4).is_empty());
        assert_eq!(pieces(&[3], 10, 4), [0..1]);
        assert_eq!(pieces(&[3, 9], 10, 4), [0..1, 1..2]);
        // One slot, many times.
        assert_eq!(pieces(&[2; 20], 10, 4).len(), 5);
    }

    #[test]
    fn workers_get_equal_shares() {
        let pieces = pieces(&(0..1000).collect::<Vec<_>>(), 1000, 8);
        let hands = deal(pieces.clone(), 3);
        assert_eq!(hands.iter().map(Vec::len).sum::<usize>(), pieces.len());
        for hand in hands {
            let records: usize = hand.iter().map(Range::len).sum();
            assert!((326..=342).contains(&records), "{records}");
        }
    }
}
