//! Element-wise loops over vectors. Long vectors are split into blocks that run on all threads; short ones run on the caller's
//! thread.

use rayon::prelude::*;

/// The number of elements of a block. Three blocks fit in a second-level cache, and a block takes longer than starting a thread.
pub(crate) const BLOCK: usize = 1 << 15;

/// Applies `change` to each element of `target` with the matching element of `source`.
pub(crate) fn read(target: &mut [f32], source: &[f32], change: impl Fn(&mut f32, f32) + Sync) {
    assert_eq!(target.len(), source.len(), "vectors of one length");
    let block = |target: &mut [f32], source: &[f32]| {
        for (target, &source) in target.iter_mut().zip(source) {
            change(target, source);
        }
    };
    if target.len() <= BLOCK {
        block(target, source);
    } else {
        target
            .par_chunks_mut(BLOCK)
            .zip(source.par_chunks(BLOCK))
            .for_each(|(target, source)| block(target, source));
    }
}

/// Applies `change` to the matching elements of two vectors.
pub(crate) fn pairs(a: &mut [f32], b: &mut [f32], change: impl Fn(&mut f32, &mut f32) + Sync) {
    assert_eq!(a.len(), b.len(), "vectors of one length");
    let block = |a: &mut [f32], b: &mut [f32]| {
        for (a, b) in a.iter_mut().zip(b) {
            change(a, b);
        }
    };
    if a.len() <= BLOCK {
        block(a, b);
    } else {
        a.par_chunks_mut(BLOCK).zip(b.par_chunks_mut(BLOCK)).for_each(|(a, b)| block(a, b));
    }
}

/// Applies `change` to the matching elements of three vectors.
pub(crate) fn triples(
    a: &mut [f32],
    b: &mut [f32],
    c: &mut [f32],
    change: impl Fn(&mut f32, &mut f32, &mut f32) + Sync,
) {
    assert!(a.len() == b.len() && b.len() == c.len(), "vectors of one length");
    let block = |a: &mut [f32], b: &mut [f32], c: &mut [f32]| {
        for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
            change(a, b, c);
        }
    };
    if a.len() <= BLOCK {
        block(a, b, c);
    } else {
        a.par_chunks_mut(BLOCK)
            .zip(b.par_chunks_mut(BLOCK))
            .zip(c.par_chunks_mut(BLOCK))
            .for_each(|((a, b), c)| block(a, b, c));
    }
}
