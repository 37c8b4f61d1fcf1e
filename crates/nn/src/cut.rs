//! How a batch is cut into pieces that are added up in single precision.
//!
//! A sum in single precision depends on which records are added up together. If pieces were cut by counting the records of a batch,
//! one additional record would shift all later ones into other pieces and change the rounding of all of them. So pieces belong to ranges
//! of slots (places in the data set). The slots are halved until a range has few enough chosen records. These are sorted by length and cut
//! into two equal pieces.
//!
//! **Guarantees.** For two batches that differ in one slot, all pieces are the same except those of one range, which holds at most
//! `2 most + 1` chosen records. (A range that does not contain the slot has the same records in both. Let R be the largest range that
//! contains the slot and is not halved in at least one of the two batches. In that batch it has at most `2 most` records, hence at most one
//! more in the other, and everything outside R is cut in the same way.) Pieces depend neither on the number of workers nor on the order in
//! which they are computed.

use std::ops::Range;

/// A part of a batch that is added up in single precision: places in the list of chosen records.
pub(crate) type Piece = Vec<usize>;

/// Cuts the records chosen from `slots` slots, in ascending order, into pieces of at most `most` records.
///
/// The records of a range that is not halved further are sorted by their length, `steps`, so that a chunk holds records of similar length.
pub(crate) fn pieces(
    chosen: &[usize],
    slots: usize,
    most: usize,
    steps: &dyn Fn(usize) -> usize,
) -> Vec<Piece> {
    let mut pieces = Vec::new();
    halve(chosen, 0..slots, 0..chosen.len(), most, steps, &mut pieces);
    pieces
}

fn halve(
    chosen: &[usize],
    slots: Range<usize>,
    places: Range<usize>,
    most: usize,
    steps: &dyn Fn(usize) -> usize,
    pieces: &mut Vec<Piece>,
) {
    let count = places.len();
    // A slot that was chosen many times cannot be halved; its records are cut into pieces all the same.
    if count <= 2 * most || slots.len() <= 1 {
        let number = count.div_ceil(most).max(count.min(2));
        let mut sorted: Vec<usize> = places.collect();
        sorted.sort_by_key(|&place| steps(chosen[place]));
        let border = |index: usize| count * index / number;
        return pieces.extend((0..number).map(|index| sorted[border(index)..border(index + 1)].to_vec()));
    }
    let middle = slots.start + slots.len() / 2;
    let split = places.start + chosen[places.clone()].partition_point(|slot| *slot < middle);
    halve(chosen, slots.start..middle, places.start..split, most, steps, pieces);
    halve(chosen, middle..slots.end, split..places.end, most, steps, pieces);
}

/// Cuts a piece, whose slots have these numbers of records, into chunks of at most `records` records and `bags` slots. A slot is never
/// divided, so no slot has more than `records`.
pub(crate) fn chunks(sizes: &[usize], records: usize, bags: usize) -> Vec<Range<usize>> {
    if sizes.iter().all(|&size| size == 1) {
        let number = sizes.len().div_ceil(records.min(bags));
        let border = |index: usize| sizes.len() * index / number;
        return (0..number).map(|index| border(index)..border(index + 1)).collect();
    }
    let (mut chunks, mut first, mut count) = (Vec::new(), 0, 0);
    for (place, size) in sizes.iter().enumerate() {
        if count + size > records || place - first == bags {
            chunks.push(first..place);
            (first, count) = (place, 0);
        }
        count += size;
    }
    chunks.push(first..sizes.len());
    chunks
}

/// Assigns the pieces to workers: in descending order of their work, each goes to the worker with the least work so far. The pieces of a
/// worker keep their order.
pub(crate) fn assign(pieces: Vec<Piece>, workers: usize, work: impl Fn(&Piece) -> usize) -> Vec<Vec<Piece>> {
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    let works: Vec<usize> = pieces.iter().map(work).collect();
    order.sort_by_key(|&piece| std::cmp::Reverse(works[piece]));
    let (mut loads, mut owners) = (vec![0; workers], vec![0; pieces.len()]);
    for piece in order {
        let least = (0..workers).min_by_key(|&worker| loads[worker]).expect("at least one worker");
        loads[least] += works[piece];
        owners[piece] = least;
    }
    let mut shares = vec![Vec::new(); workers];
    for (piece, owner) in pieces.into_iter().zip(owners) {
        shares[owner].push(piece);
    }
    shares
}

/// The largest distance between the sums of two batches that differ in one record, beyond what that record adds. It is due to rounding to
/// single precision and relative to the bound on what a record adds. Pieces have at most `most` records. `chunks` lists, for each class of lengths,
/// the largest number of records in a chunk. All layers add up records in [groups](GROUP) within a chunk if `in_groups` is true; otherwise some layers add them up one after another, and
/// chunks may have any borders. A record stands for a slot: what follows counts the vectors that are added up, each of them one slot's.
///
/// An addition is off by at most `u = 2^-24` of its result, and a sum over `n` records, each of norm at most 1, has at most norm `n`. So a sum is
/// off by at most `u` times the number of additions that record `i` takes part in, added up over all `i`. If records are added up one after
/// another, this number is `1 + 2 + ... + n`. In `k` groups of at most `g`, it is at most `n (g + 1) / 2` within the groups and `n k` over them. If the
/// parameters of a network are added up in both ways, the greater number counts for each record. In groups, a record takes part in at most `g` additions
/// within its group and one for each group from there on, so in at most `g` more than one after another. By the guarantee above, the two batches
/// differ in at most two full pieces each and one record.
///
/// The number of groups. With one class, `n` records are in `ceil(n / r)` chunks of at most `ceil(r / g)` groups each. With `K` classes, `n_c` records
/// of class `c` are in at most `n_c / r_c + 1` chunks, so there are at most `n / r + K` chunks, where `r` is the smallest `r_c`. A chunk of `m`
/// records has at most `1 + m / g` groups. So there are at most `n / r + K + n / g` groups.
pub(crate) fn rounding(most: usize, chunks: &[usize], in_groups: bool) -> f64 {
    const UNIT: f64 = 1.0 / (1 << 24) as f64;
    let (least, greatest) = chunks
        .iter()
        .fold((usize::MAX, 1), |(least, greatest), chunk| (least.min(*chunk), greatest.max(*chunk)));
    let (n, group) = ((most + 1) as f64, GROUP.min(greatest) as f64);
    let groups = match chunks {
        [chunk] => ((most + 1).div_ceil(*chunk) * chunk.div_ceil(GROUP)) as f64,
        _ => n / least as f64 + chunks.len() as f64 + n / GROUP as f64,
    };
    let one_by_one = n * (n + 1.0) / 2.0;
    let by_group = n * (group + 1.0) / 2.0 + n * groups;
    let both = one_by_one + n * group;
    let additions = if in_groups { by_group.min(both) } else { both };
    4.0 * UNIT * additions
}

/// The number of records in a group. Each group of a chunk is added up separately, so that rounding errors grow with the number of groups
/// and not with the number of records.
pub(crate) const GROUP: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths between 1 and 30.
    fn steps(slot: usize) -> usize {
        1 + slot * slot % 30
    }

    /// The records of each piece.
    fn sets(chosen: &[usize], slots: usize, most: usize) -> Vec<Vec<usize>> {
        let pieces = pieces(chosen, slots, most, &steps);
        let mut places = pieces.concat();
        places.sort_unstable();
        assert!(places.into_iter().eq(0..chosen.len()), "each place is in one piece");
        pieces.into_iter().map(|piece| piece.into_iter().map(|place| chosen[place]).collect()).collect()
    }

    /// Leaves out every record of many batches: the pieces that change hold few records.
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

    /// Counts the additions that each record takes part in, for two pieces as large as they can be. Their records are in classes of lengths, in
    /// several shares.
    #[test]
    fn the_bound_on_rounding_counts_every_addition() {
        let cases: [(usize, &[(usize, f64)]); 10] = [
            (256, &[(256, 1.0)]),
            (98, &[(8, 1.0)]),
            (9, &[(1, 1.0)]),
            (71, &[(6, 1.0)]),
            (200, &[(33, 1.0)]),
            (40, &[(40, 1.0)]),
            (64, &[(58, 0.4), (29, 0.3), (7, 0.2), (1, 0.1)]),
            (64, &[(58, 0.1), (29, 0.0), (7, 0.0), (1, 0.9)]),
            (256, &[(256, 0.5), (130, 0.5), (65, 0.0)]),
            (100, &[(33, 0.25), (33, 0.25), (33, 0.25), (32, 0.25)]),
        ];
        for (most, classes) in cases {
            let (mut later, mut border) = (vec![0.0; most], 0.0);
            let mut groups: Vec<Vec<usize>> = Vec::new();
            for (chunk, share) in classes {
                let first = (border * most as f64).round() as usize;
                border += share;
                let sizes = vec![1; (border * most as f64).round() as usize - first];
                for range in chunks(&sizes, *chunk, *chunk) {
                    let records: Vec<usize> = range.map(|record| first + record).collect();
                    groups.extend(records.chunks(GROUP).map(<[usize]>::to_vec));
                }
            }
            for (number, group) in groups.iter().enumerate() {
                for (place, record) in group.iter().enumerate() {
                    later[*record] = ((group.len() - place) + (groups.len() - number)) as f64;
                }
            }
            let in_groups: f64 = later.iter().sum();
            let both: f64 = later.iter().enumerate().map(|(i, k)| k.max((most - i) as f64)).sum();
            let largest: Vec<usize> = classes.iter().map(|(chunk, _)| *chunk).collect();
            for (flag, counted) in [(true, in_groups), (false, both)] {
                let bound = rounding(most, &largest, flag) * f64::from(1 << 24);
                assert!(
                    4.0 * counted <= bound && bound <= 24.0 * counted,
                    "{most} {largest:?}: {counted} {bound}"
                );
            }
        }
    }

    #[test]
    fn small_and_odd_batches_are_cut_as_well() {
        assert!(sets(&[], 10, 4).is_empty());
        assert_eq!(sets(&[3], 10, 4).len(), 1);
        assert_eq!(sets(&[3, 9], 10, 4), [[3], [9]]);
        // One slot, many times.
        assert_eq!(sets(&[2; 20], 10, 4).len(), 5);
    }

    #[test]
    fn the_pieces_of_a_range_are_sorted_by_length() {
        assert_eq!(sets(&[0, 1, 2, 3, 4, 5], 6, 3), [[0, 1, 2], [3, 4, 5]]);
        // 1 + 81, 1 + 64, 1 + 36 and so on, modulo 30.
        assert_eq!(sets(&[5, 6, 7, 8, 9], 10, 3), [vec![8, 6], vec![7, 9, 5]]);
        let whole = sets(&(0..1000).collect::<Vec<_>>(), 1000, 8);
        let longest = |piece: &Vec<usize>| piece.len() * piece.iter().map(|&slot| steps(slot)).max().unwrap();
        let sum = |piece: &Vec<usize>| piece.iter().map(|&slot| steps(slot)).sum::<usize>();
        let (padded, own): (usize, usize) = (whole.iter().map(longest).sum(), whole.iter().map(sum).sum());
        assert!(padded as f64 <= 1.5 * own as f64, "{padded} {own}");
    }

    #[test]
    fn chunks_hold_whole_slots() {
        assert_eq!(chunks(&[1; 7], 3, 9), [0..2, 2..4, 4..7]);
        assert_eq!(chunks(&[1; 7], 9, 3), [0..2, 2..4, 4..7]);
        assert!(chunks(&[], 3, 3).is_empty());
        assert_eq!(chunks(&[2, 1, 3, 1, 1, 1, 1], 3, 3), [0..2, 2..3, 3..6, 6..7]);
        assert_eq!(chunks(&[2, 1, 3, 1, 1, 1, 1], 4, 2), [0..2, 2..4, 4..6, 6..7]);
    }

    #[test]
    fn workers_get_equal_shares_of_the_work() {
        let pieces = pieces(&(0..1000).collect::<Vec<_>>(), 1000, 8, &steps);
        let work = |piece: &Piece| piece.iter().map(|&place| steps(place)).sum::<usize>();
        let total: usize = pieces.iter().map(work).sum();
        let shares = assign(pieces.clone(), 3, work);
        assert_eq!(shares.iter().map(Vec::len).sum::<usize>(), pieces.len());
        for share in shares {
            let own: usize = share.iter().map(work).sum();
            assert!(own.abs_diff(total / 3) <= total / 100, "{own} of {total}");
        }
    }
}
