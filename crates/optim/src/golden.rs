//! Whole optimizers compared with PyTorch 2.9.1: twenty steps of `torch.optim` at a learning rate of 0.05 from
//! [1, -2, 0.5, 0], with the gradient sin(3 t + i) + 0.1 i in element i at step t = 0..20.

use crate::{Optimizer, OptimizerConfig};

fn after_twenty_steps(config: &str, expected: [f32; 4]) {
    let config: OptimizerConfig = serde_json::from_str(config).unwrap();
    let mut optimizer = Optimizer::new(&config, std::iter::once(0..4).collect(), 4).unwrap();
    let mut params = [1.0, -2.0, 0.5, 0.0];
    for step in 0..20 {
        let mut gradient = [0.0, 1.0, 2.0, 3.0].map(|i| ((3.0 * f64::from(step) + i).sin() + 0.1 * i) as f32);
        // Without noise correction, the noise must not matter.
        optimizer.advance(&mut gradient, 0.7, 0.05, &mut params);
    }
    for (param, expected) in params.iter().zip(expected) {
        assert!((param - expected).abs() < 3e-6, "{params:?} for {expected}");
    }
}

#[test]
fn sgd_equals_torch() {
    after_twenty_steps(r#"{"type": "sgd"}"#, [0.988_918_3, -2.146_605_5, 0.260_719_9, -0.295_841_13]);
}

#[test]
fn sgd_with_decay_equals_torch() {
    // For plain SGD, torch's coupled decay equals decoupled decay.
    after_twenty_steps(
        r#"{"type": "sgd", "weight_decay": 0.1}"#,
        [0.893_662_33, -1.949_232_1, 0.224_256_08, -0.281_821_34],
    );
}

#[test]
fn momentum_equals_torch() {
    after_twenty_steps(r#"{"type": "momentum"}"#, [0.980_342_87, -2.812_06, -0.913_826_17, -1.827_660_6]);
}

#[test]
fn nesterov_equals_torch() {
    after_twenty_steps(r#"{"type": "nesterov"}"#, [0.971_226_93, -2.877_46, -1.011_723_6, -1.940_735_7]);
}

#[test]
fn adam_equals_torch() {
    after_twenty_steps(r#"{"type": "adam"}"#, [0.965_333_8, -2.260_630_1, 0.200_119_35, -0.474_130_45]);
}

#[test]
fn adamw_equals_torch() {
    after_twenty_steps(r#"{"type": "adamw"}"#, [0.955_675_8, -2.239_238_7, 0.196_715_92, -0.471_483_68]);
    after_twenty_steps(
        r#"{"type": "adamw", "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3, "weight_decay": 0.3}"#,
        [0.713_488_1, -1.684_270_1, 0.114_801_764, -0.389_164],
    );
}

#[test]
fn rmsprop_equals_torch() {
    after_twenty_steps(r#"{"type": "rmsprop"}"#, [0.707_495_9, -2.909_730_7, -0.568_576_1, -1.854_506_5]);
}

#[test]
fn adagrad_equals_torch() {
    after_twenty_steps(r#"{"type": "adagrad"}"#, [0.970_859_9, -2.089_560_8, 0.395_358_56, -0.183_907_96]);
}
