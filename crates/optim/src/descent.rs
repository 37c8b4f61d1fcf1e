//! The descent step: weight decay, then a move against the update.

use crate::blocks;

/// `p_t = (1 - lr wd) p_(t-1) - lr u_t`, with decoupled weight decay.
///
/// # Guarantees
/// The decay uses the parameters only, which were computed from earlier releases, so it costs no privacy. A decay that is part of
/// the loss would have to be clipped with the gradients.
///
/// # References
/// Loshchilov and Hutter, "Decoupled weight decay regularization" (2019), algorithm 1.
pub(crate) fn descend(params: &mut [f32], update: &[f32], learning_rate: f64, weight_decay: f64) {
    let shrink = (1.0 - learning_rate * weight_decay) as f32;
    let rate = learning_rate as f32;
    blocks::read(params, update, |param, update| *param = shrink * *param - rate * update);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decay_shrinks_by_the_learning_rate_times_its_weight() {
        let mut params = [4.0, -2.0];
        descend(&mut params, &[0.0, 0.0], 0.5, 0.5);
        assert_eq!(params, [3.0, -1.5]);
    }

    #[test]
    fn a_learning_rate_of_zero_changes_nothing() {
        let mut params = [4.0, -2.0];
        descend(&mut params, &[1.0, 7.0], 0.0, 0.5);
        assert_eq!(params, [4.0, -2.0]);
    }
}
