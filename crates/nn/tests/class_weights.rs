//! Class weights multiply the loss and the gradient of a record before its norm is computed.

use sordino_nn::layers::{Linear, Tanh};
use sordino_nn::{Description, Engine, Inputs, Loss, Pass, Shape, Targets};

#[test]
fn a_class_weight_scales_the_gradient_and_the_norm_of_its_records() {
    let description =
        Description::new(Shape::Features(3)).then(Linear::new(4)).then(Tanh).then(Linear::new(3));
    let network = || sordino_nn::Network::new(&description).unwrap();
    let values: Vec<f32> = (0..15).map(|i| ((i * 7) % 11) as f32 / 5.0 - 1.0).collect();
    let classes = [0, 1, 2, 1, 0];
    let mut engine = Engine::new(network(), Loss::cross_entropy()).unwrap();
    let records = engine.records(Inputs::Dense(&values), Targets::Classes(&classes)).unwrap();
    let params = network().init(3);
    let weights = [1.0, 2.5, 0.5];
    let mut of = |chosen: &[usize], weights: &[f32]| {
        let mut sums = [vec![0.0; params.values().len()]];
        let rule = |_: &[f64], weights: &mut [f32]| weights.fill(1.0);
        let pass = Pass::new(&params, &records, chosen).weighed_by(&rule).with_class_weights(weights);
        let outcome = engine.pass(&pass, &mut sums).unwrap();
        let [sum] = sums;
        (sum, outcome)
    };
    let mut expected = vec![0.0; params.values().len()];
    for (record, class) in classes.into_iter().enumerate() {
        let ((plain, before), (_, after)) = (of(&[record], &[]), of(&[record], &weights));
        let weight = f64::from(weights[class as usize]);
        expected.iter_mut().zip(plain).for_each(|(sum, plain)| *sum += weight * plain);
        assert!((after.norms[0] / (weight * before.norms[0]) - 1.0).abs() < 1e-5, "{class}");
        assert!((after.losses[0] / (weight * before.losses[0]) - 1.0).abs() < 1e-6, "{class}");
    }
    let (sum, _) = of(&[0, 1, 2, 3, 4], &weights);
    assert!(sum.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5), "{sum:?} {expected:?}");
    // Classes without a weight are not changed.
    assert_eq!(of(&[0, 2], &[1.0]).0, of(&[0, 2], &[]).0);
}
