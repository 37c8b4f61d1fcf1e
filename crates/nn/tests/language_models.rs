//! Networks that end in a sequence, and the loss of the next token.

use sordino_nn::layers::{Attention, Embedding, LayerNorm, Linear, Residual, TiedOutput};
use sordino_nn::{Description, Engine, Inputs, Loss, Network, Pass, Shape, Targets};

/// The outputs of sequences come at their true lengths, and padding has no influence on them.
#[test]
fn a_network_may_end_in_a_sequence() {
    let description = Description::new(Shape::Tokens { steps: 6, vocabulary: 4 })
        .then(Embedding { width: 4 })
        .then(Attention::causal(2))
        .then(Linear::new(3));
    let mut engine = Engine::without_loss(Network::new(&description).unwrap()).unwrap();
    let params = engine.network().init(1);
    let (tokens, starts) = ([1, 2, 3, 0, 1, 2, 3, 3, 1, 2], [0, 3, 9, 10]);
    let inputs = engine.unlabelled(Inputs::Tokens { tokens: &tokens, starts: &starts }).unwrap();
    let (values, ends) = engine.sequence_outputs(&params, &inputs, &[0, 1, 2]).unwrap();
    assert_eq!((values.len(), &ends[..]), (30, &starts[..]));
    for record in 0..3 {
        let (alone, _) = engine.sequence_outputs(&params, &inputs, &[record]).unwrap();
        assert_eq!(alone, values[3 * starts[record]..3 * starts[record + 1]]);
    }
    // A causal network does not read later tokens: its first outputs are those of a shorter record.
    let cut = engine.unlabelled(Inputs::Tokens { tokens: &[1, 2], starts: &[0, 2] }).unwrap();
    assert_eq!(engine.outputs(&params, &cut, &[0]).unwrap(), values[..6]);
    assert!(
        engine
            .records(Inputs::Tokens { tokens: &tokens, starts: &starts }, Targets::Classes(&[0; 3]))
            .is_err()
    );
    let error = Engine::new(Network::new(&description).unwrap(), Loss::cross_entropy()).err().unwrap();
    assert!(error.to_string().contains("must end in a vector"), "{error}");
}

/// One token predicts the next: the loss and its gradient are those of a table of logits, averaged over the predicted positions.
#[test]
fn the_loss_of_next_tokens_is_a_mean_within_the_record() {
    let description =
        Description::new(Shape::Tokens { steps: 5, vocabulary: 3 }).then(Embedding { width: 3 });
    let mut engine = Engine::with_workers(Network::new(&description).unwrap(), Loss::NextToken, 1).unwrap();
    let params = engine.network().init(4);
    let (tokens, starts, from) = ([0, 1, 1, 2, 2, 0, 1], [0, 4, 6, 7], [2, 1, 1]);
    let inputs = Inputs::Tokens { tokens: &tokens, starts: &starts };
    let records = engine.records(inputs, Targets::NextTokens { from: &from }).unwrap();
    let look = |_: &[f64], weights: &mut [f32]| weights.fill(1.0);
    let softmax = |token: usize| {
        let e: Vec<f64> = params.values()[3 * token..][..3].iter().map(|z| f64::from(*z).exp()).collect();
        e.iter().map(|x| x / e.iter().sum::<f64>()).collect::<Vec<f64>>()
    };
    // Record 0 predicts 1 -> 1 and 1 -> 2, record 1 predicts 2 -> 0, record 2 nothing.
    let pairs: [&[(usize, usize)]; 3] = [&[(1, 1), (1, 2)], &[(2, 0)], &[]];
    for (record, pairs) in pairs.into_iter().enumerate() {
        let (mut loss, mut gradient) = (0.0, [0.0; 9]);
        for &(token, next) in pairs {
            loss -= softmax(token)[next].ln() / pairs.len() as f64;
            for (class, p) in softmax(token).into_iter().enumerate() {
                let error = p - f64::from(u8::from(class == next));
                gradient[3 * token + class] += error / pairs.len() as f64;
            }
        }
        let mut sums = [vec![0.0; 9]];
        let outcome =
            engine.pass(&Pass::new(&params, &records, &[record]).weighed_by(&look), &mut sums).unwrap();
        assert!((outcome.losses[0] - loss).abs() < 1e-6 && outcome.non_finite.is_empty());
        let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
        assert!((outcome.norms[0] - norm).abs() < 1e-6);
        assert!(sums[0].iter().zip(gradient).all(|(a, b)| (a - b).abs() < 1e-6), "{record}");
    }
    let zero = engine.records(inputs, Targets::NextTokens { from: &[2, 0, 1] }).err().unwrap();
    assert!(zero.to_string().contains("record 1"), "{zero}");
}

#[test]
fn the_loss_of_next_tokens_needs_an_output_for_each_token() {
    let tokens = Description::new(Shape::Tokens { steps: 5, vocabulary: 3 }).then(Embedding { width: 4 });
    let vectors = Description::new(Shape::Sequence { steps: 5, width: 3 }).then(Linear::new(3));
    for (description, problem) in [(tokens, "5 steps of 3"), (vectors, "records of tokens")] {
        let error = Engine::new(Network::new(&description).unwrap(), Loss::NextToken).err().unwrap();
        assert!(error.to_string().contains(problem), "{error}");
    }
}

/// The shared matrix is one layer: a record clipped by the reported norm adds a vector of at most the bound, at ordinary and at extreme
/// points, with a gradient that is written out and with a norm from Gram matrices.
#[test]
fn a_clipped_gradient_of_a_shared_matrix_stays_within_its_bound() {
    for (vocabulary, width, scale) in
        [(9, 4, 1.0), (9, 4, 300.0), (300, 24, 1.0), (300, 24, 300.0), (300, 24, 1e-3)]
    {
        let description = Description::new(Shape::Tokens { steps: 12, vocabulary })
            .named("embedding", Embedding { width })
            .then(Residual::new(vec![LayerNorm::default().into(), Attention::causal(2).into()]))
            .then(TiedOutput);
        let mut engine =
            Engine::with_workers(Network::new(&description).unwrap(), Loss::NextToken, 1).unwrap();
        assert_eq!(engine.network().layers()[0].name, "embedding");
        assert!(
            engine.network().layers().iter().all(|layer| layer.range.end <= engine.network().layout().len())
        );
        let mut params = engine.network().init(3);
        params.slice_mut("embedding.weight").unwrap().iter_mut().for_each(|value| *value *= scale);
        let tokens: Vec<u32> = (0..12 * 8).map(|i| i * i / 5 % 9).collect();
        let starts: Vec<usize> = (0..=8).map(|record| 12 * record).collect();
        let inputs = Inputs::Tokens { tokens: &tokens, starts: &starts };
        let records = engine.records(inputs, Targets::NextTokens { from: &[1; 8] }).unwrap();
        let clip = |norms: &[f64], weights: &mut [f32]| {
            weights.fill((0.5 / norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt()) as f32);
        };
        for record in 0..8 {
            let mut sums = [vec![0.0; params.values().len()]];
            let pass = Pass::new(&params, &records, std::slice::from_ref(&record)).weighed_by(&clip);
            engine.pass(&pass, &mut sums).unwrap();
            let norm = sums[0].iter().map(|g| g * g).sum::<f64>().sqrt();
            assert!((0.499..=0.5 * (1.0 + 1e-6)).contains(&norm), "{vocabulary} {scale} {record}: {norm}");
        }
    }
}

#[test]
fn a_tied_output_needs_an_embedding_of_its_width() {
    let tokens = || Description::new(Shape::Tokens { steps: 5, vocabulary: 3 }).then(Embedding { width: 4 });
    let vectors = Description::new(Shape::Sequence { steps: 5, width: 3 }).then(TiedOutput);
    let mut frozen = tokens().then(TiedOutput);
    frozen.layers[1].frozen = true;
    for (description, problem) in [
        (vectors, "needs an embedding before it"),
        (tokens().then(Linear::new(5)).then(TiedOutput), "needs steps of 4, the width of the embedding"),
        (tokens().then(TiedOutput).then(Linear::new(4)).then(TiedOutput), "only one layer"),
        (frozen, "freeze that layer as well or neither"),
    ] {
        let error = Network::new(&description).err().unwrap().to_string();
        assert!(error.contains(problem), "{error}");
    }
}

/// Before training, a model whose output layer is its embedding predicts all tokens about equally well.
#[test]
fn the_first_loss_of_a_tied_model_is_that_of_equal_probabilities() {
    let gpt = sordino_nn::models::ModelConfig::from(sordino_nn::models::Gpt::default());
    let network = gpt.network(Shape::Tokens { steps: 8, vocabulary: 500 }, 0).unwrap();
    let mut engine = Engine::new(network, Loss::NextToken).unwrap();
    let params = engine.network().init(1);
    let (tokens, starts) = ([7, 450, 3, 99, 250, 1, 2, 300], [0, 8]);
    let inputs = Inputs::Tokens { tokens: &tokens, starts: &starts };
    let records = engine.records(inputs, Targets::NextTokens { from: &[1] }).unwrap();
    let mut sums = [vec![0.0; params.values().len()]];
    let outcome = engine.pass(&Pass::new(&params, &records, &[0]), &mut sums).unwrap();
    let uniform = 500.0_f64.ln();
    assert!((outcome.losses[0] - uniform).abs() < 0.5, "{} {uniform}", outcome.losses[0]);
}
