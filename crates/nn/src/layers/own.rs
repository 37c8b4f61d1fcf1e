//! Layers that users write.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    BufferSizes, Composite, Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients,
    PlannedOperation, Site, Term, Workspace,
};
use crate::error::NetworkError;
use crate::gradients::direct;
use crate::graph_builder::{GraphBuilder, Position, Source, Value};
use crate::init::{Init, Parameter};
use crate::network::MOST_PARAMETERS;
use crate::shape::{Shape, Storage};
use crate::shapes::{check_shape, positive, real_values};

/// A layer that a user writes: the forward and backward pass of one record.
///
/// The values of a record lie one after another, images channel by channel. A record of a sequence has as many steps as it is long, so
/// its slices may be shorter than the shape. `params` holds all parameters in the order of [`parameters`](Self::parameters).
///
/// **Guarantees.** A wrong layer costs accuracy, not privacy. In each pass the engine calls `backward` once for each record (once for
/// each point of a [difference](crate::Pass::minus)) and writes the gradient into a buffer. The norm that a
/// [weight rule](crate::WeightRule) sees and the vector that is added to a sum both come from this buffer. So clipping bounds what is
/// added, even if the gradient is wrong or changes from call to call. A record for which the layer panics or computes values that are
/// not finite adds nothing to a sum.
///
/// **What the layer must guarantee.** Its results for a record must depend on the arguments alone. A layer that carries information from one
/// record to another (through a static, a cell or a file, for example) breaks the guarantee, and no engine can detect it. The same holds for a layer
/// that ends the process or never returns for certain records. A panic is caught, but its message goes to standard error; it should not
/// quote values of a record.
///
/// ```
/// use sordino_nn::layers::{Linear, Own};
/// use sordino_nn::{Description, Init, Network, Parameter, RecordLayer, Shape};
///
/// /// Multiplies each feature by a learned factor.
/// #[derive(Debug)]
/// struct Scale;
///
/// impl RecordLayer for Scale {
///     fn output_shape(&self, input: Shape) -> Result<Shape, String> {
///         match input {
///             Shape::Features(_) => Ok(input),
///             _ => Err(format!("needs a vector, gets {input}")),
///         }
///     }
///
///     fn parameters(&self, input: Shape) -> Vec<Parameter> {
///         vec![Parameter::new("factor", &[input.len()], Init::Constant(1.0))]
///     }
///
///     fn forward(&self, params: &[f32], input: &[f32], output: &mut [f32]) {
///         for i in 0..input.len() {
///             output[i] = params[i] * input[i];
///         }
///     }
///
///     fn backward(
///         &self,
///         params: &[f32],
///         input: &[f32],
///         output_gradient: &[f32],
///         input_gradient: &mut [f32],
///         gradient: &mut [f32],
///     ) {
///         for i in 0..input.len() {
///             input_gradient[i] = params[i] * output_gradient[i];
///             gradient[i] = input[i] * output_gradient[i];
///         }
///     }
/// }
///
/// let description = Description::new(Shape::Features(4)).named("scale", Own::new(Scale)).then(Linear::new(2));
/// let network = Network::new(&description)?;
/// assert_eq!(network.layout().slices()[0].name, "scale.factor");
/// # Ok::<(), sordino_nn::NetworkError>(())
/// ```
pub trait RecordLayer: Debug + Send + Sync {
    /// The shape of the output.
    ///
    /// The input is never of [tokens](Shape::Tokens), and neither may the output be. If the output is a sequence, the input must be one
    /// with as many steps.
    ///
    /// # Errors
    /// The reason why the layer cannot read this input.
    fn output_shape(&self, input: Shape) -> Result<Shape, String>;

    /// The parameters; empty for a layer without parameters.
    fn parameters(&self, input: Shape) -> Vec<Parameter>;

    /// Computes the output of one record; `output` is zero before the call.
    fn forward(&self, params: &[f32], input: &[f32], output: &mut [f32]);

    /// Computes the gradients of one record's loss with respect to its input and to the parameters, given the gradient with respect to
    /// its output. Both results are zero before the call.
    fn backward(
        &self,
        params: &[f32],
        input: &[f32],
        output_gradient: &[f32],
        input_gradient: &mut [f32],
        gradient: &mut [f32],
    );
}

/// A layer that a user writes, as part of a [`Description`](crate::Description).
///
/// It cannot be written to or read from a file.
#[derive(Debug, Clone)]
pub struct Own(Arc<dyn RecordLayer>);

impl Own {
    /// Wraps a layer.
    pub fn new(layer: impl RecordLayer + 'static) -> Own {
        Own(Arc::new(layer))
    }
}

/// A layer is equal to its clones.
impl PartialEq for Own {
    fn eq(&self, other: &Own) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Serialize for Own {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom(format!(
            "a layer of type own is Rust code and cannot be written to a file: {:?}",
            self.0
        )))
    }
}

impl<'de> Deserialize<'de> for Own {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Own, D::Error> {
        Err(D::Error::custom(
            "a layer of type own is Rust code and cannot be read from a file; describe the network in Rust",
        ))
    }
}

impl LayerType for Own {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        let shape = real_values(input)?;
        let output = self.0.output_shape(shape)?;
        check_shape(output)?;
        match (shape, output) {
            (_, Shape::Tokens { .. }) => Err(format!("the output must be real values, got {output}")),
            (Shape::Sequence { steps, .. }, Shape::Sequence { steps: same, .. }) if steps == same => {
                Ok(output)
            }
            (_, Shape::Sequence { .. }) => Err(format!(
                "a sequence can be computed only from one with as many steps, got {output} from {shape}"
            )),
            _ => Ok(output),
        }
    }

    fn form(&self) -> Form<'_> {
        Form::Composite(self)
    }
}

impl Composite for Own {
    fn add_to(
        &self,
        graph: &mut GraphBuilder,
        at: &Position,
        input: &Source,
        output: Shape,
    ) -> Result<Value, NetworkError> {
        // Called once: a layer might return a different result the next time.
        let parameters = self.0.parameters(input.shape());
        check_parameters(&parameters).map_err(|problem| at.error(problem))?;
        let planned = PlannedOwn { layer: self.0.clone(), parameters };
        Ok(graph.operation(at, Box::new(planned), input.value, output))
    }
}

fn check_parameters(parameters: &[Parameter]) -> Result<(), String> {
    let mut total = 0;
    for Parameter { name, shape, init } in parameters {
        if name.is_empty() {
            return Err("every parameter needs a name".to_owned());
        }
        shape.iter().try_for_each(|size| positive(&format!("dimensions of {name}"), *size))?;
        let values = shape.iter().try_fold(1, |values: usize, size| values.checked_mul(*size));
        total = values.and_then(|values| values.checked_add(total)).unwrap_or(usize::MAX);
        if total > MOST_PARAMETERS {
            return Err(format!("has more than the {MOST_PARAMETERS} permitted parameters"));
        }
        match *init {
            Init::Constant(value) if value.is_finite() => {}
            Init::Uniform(size) | Init::Normal(size) if (0.0..=f32::MAX).contains(&size) => {}
            _ => return Err(format!("initial values of {name} must be finite, got {init:?}")),
        }
    }
    Ok(())
}

struct PlannedOwn {
    layer: Arc<dyn RecordLayer>,
    parameters: Vec<Parameter>,
}

impl PlannedOperation for PlannedOwn {
    fn parameters(&self, _: Shape) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        Box::new(OwnOperation {
            layer: self.layer.clone(),
            input: site.input,
            output: site.output,
            parameters: self
                .parameters
                .iter()
                .map(|parameter| parameter.shape.iter().product::<usize>())
                .sum(),
        })
    }
}

/// Calls the layer record by record. The gradient of each record is written out.
struct OwnOperation {
    layer: Arc<dyn RecordLayer>,
    input: Storage,
    output: Storage,
    parameters: usize,
}

impl OwnOperation {
    /// Floats from one record's gradient to the next.
    fn gradient_size(&self) -> usize {
        self.parameters.next_multiple_of(16)
    }
}

/// The number of values of a record with this many steps.
fn values(storage: &Storage, steps: usize) -> usize {
    storage.shape.len() / storage.shape.steps() * steps.min(storage.shape.steps())
}

impl Operation for OwnOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        Some(self)
    }

    fn buffer_sizes(&self, _: usize) -> BufferSizes {
        BufferSizes { gradients: self.gradient_size(), ..BufferSizes::default() }
    }

    /// An estimate: each parameter is used once for each step.
    fn work(&self, steps: usize) -> [usize; 3] {
        [self.parameters * steps + self.output.shape.len(); 3]
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut LayerBuffers) {
        let (from, to) = (self.input.record(context.steps), self.output.record(context.steps));
        let (mut input, mut output) = (Vec::new(), Vec::new());
        for (record, &steps) in context.lengths.iter().enumerate() {
            reset(&mut input, values(&self.input, steps));
            reset(&mut output, values(&self.output, steps));
            self.input.read(&x[record * from..][..from], &mut input);
            let run = || self.layer.forward(context.params, &input, &mut output);
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                output.fill(f32::NAN);
            }
            self.output.write(&output, &mut y[record * to..][..to]);
        }
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, buffers: &mut LayerBuffers) {
        let Flow { x, dy, mut dx, .. } = flow;
        let (from, to) = (self.input.record(context.steps), self.output.record(context.steps));
        let (mut input, mut output_gradient, mut input_gradient) = (Vec::new(), Vec::new(), Vec::new());
        for (record, &steps) in context.lengths.iter().enumerate() {
            reset(&mut input, values(&self.input, steps));
            reset(&mut input_gradient, values(&self.input, steps));
            reset(&mut output_gradient, values(&self.output, steps));
            self.input.read(&x[record * from..][..from], &mut input);
            self.output.read(&dy[record * to..][..to], &mut output_gradient);
            let gradient = &mut buffers.gradients[record * self.gradient_size()..][..self.parameters];
            gradient.fill(0.0);
            let run = || {
                self.layer.backward(context.params, &input, &output_gradient, &mut input_gradient, gradient);
            };
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                // Both, since the layer may have no parameters.
                input_gradient.fill(f32::NAN);
                gradient.fill(f32::NAN);
            }
            if let Some(dx) = &mut dx {
                self.input.write(&input_gradient, &mut dx[record * from..][..from]);
            }
        }
    }
}

/// Makes `values` a vector of zeros.
fn reset(values: &mut Vec<f32>, len: usize) {
    values.clear();
    values.resize(len, 0.0);
}

impl ParameterGradients for OwnOperation {
    fn squared_norms(&self, terms: &[Term<'_>], _: &mut Workspace<'_>, out: &mut [f64]) {
        let last = terms[terms.len() - 1];
        direct::squared_norms_of_bags(
            &last.buffers.gradients,
            self.parameters,
            self.gradient_size(),
            last.context.bags,
            out,
        );
    }

    fn weighted_sum(
        &self,
        terms: &[Term<'_>],
        weights: Option<&[f32]>,
        _: &mut Workspace<'_>,
        sum: &mut [f32],
    ) {
        let last = terms[terms.len() - 1];
        direct::weighted_sum_of_bags(
            &last.buffers.gradients,
            self.gradient_size(),
            last.context.bags,
            weights,
            sum,
        );
    }

    fn sums_in_groups(&self, _: usize) -> bool {
        true
    }
}
