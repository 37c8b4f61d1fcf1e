//! Networks for `sordino.torch`: a description as JSON, its parameters, and its outputs for given weights.

use numpy::ndarray::{ArrayD, IxDyn};
use numpy::{IntoPyArray, PyArrayDyn, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use sordino::nn::{self, Description, Engine, Inputs, NetworkError, Params, Shape};

use crate::{errors::to_python, threads::run_short};

/// A network of the engine, described in JSON by `input` and `layers`.
///
/// Parameters
/// ----------
/// description : str
///     The description as JSON. ``docs/engine.md`` lists the layers.
///
/// Raises
/// ------
/// ValueError
///     If a layer does not fit the layer before it. The message names the layer.
///
/// Examples
/// --------
/// >>> import json
/// >>> from sordino._sordino import Network
/// >>> layers = [{"type": "linear", "outputs": 2, "name": "fc"}]
/// >>> network = Network(json.dumps({"input": {"features": 3}, "layers": layers}))
/// >>> network.parameters()
/// [('fc.weight', (2, 3)), ('fc.bias', (2,))]
/// >>> import numpy as np
/// >>> weights = {"fc.weight": np.ones((2, 3), np.float32), "fc.bias": np.zeros(2, np.float32)}
/// >>> network.outputs(weights, np.ones((1, 3), np.float32)).tolist()
/// [[3.0, 3.0]]
#[pyclass(frozen, module = "sordino._sordino")]
pub(crate) struct Network {
    description: Description,
    parameters: Vec<nn::Slice>,
    output: Shape,
}

#[pymethods]
impl Network {
    #[new]
    fn new(description: &str) -> PyResult<Network> {
        let description = self::description(description)?;
        let network = nn::Network::new(&description).map_err(to_python)?;
        let (parameters, output) = (network.layout().slices().to_vec(), network.output());
        Ok(Network { description, parameters, output })
    }

    /// The names and shapes of the parameters, in the order of the engine.
    ///
    /// Returns
    /// -------
    /// list of (str, tuple of int)
    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, Bound<'py, PyTuple>)>> {
        let pair = |slice: &nn::Slice| Ok((slice.name.clone(), PyTuple::new(py, &slice.shape)?));
        self.parameters.iter().map(pair).collect()
    }

    /// The number of outputs. If the network ends in a sequence, it is the number of outputs of each step.
    #[getter]
    fn output_width(&self) -> usize {
        match self.output {
            Shape::Sequence { width, .. } => width,
            shape => shape.len(),
        }
    }

    /// The outputs for records, without dropout.
    ///
    /// Parameters
    /// ----------
    /// weights : dict of str to float32 array
    ///     An array for each parameter.
    /// x : float32 array, or uint32 array of tokens
    ///     One record after another.
    ///
    /// Returns
    /// -------
    /// float32 array
    ///     One row for each record. If the network ends in a sequence, one row for each step of each record.
    fn outputs<'py>(
        &self,
        py: Python<'py>,
        weights: &Bound<'py, PyDict>,
        x: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let params = params(&self.description, weights)?;
        let (values, records) = match x.extract::<PyReadonlyArrayDyn<'py, f32>>() {
            Ok(x) => {
                let values = contiguous(&x, "x")?;
                run_short(py, || self.run(&params, Inputs::Dense(values)))?.map_err(to_python)?
            }
            Err(_) => {
                let x = x.extract::<PyReadonlyArrayDyn<'py, u32>>().map_err(|_| {
                    PyValueError::new_err(
                        "x must be an array of float32, or of uint32 if the network reads tokens",
                    )
                })?;
                let tokens = contiguous(&x, "x")?;
                let (records, steps) = match x.shape() {
                    &[records, steps] => (records, steps),
                    shape => {
                        return Err(PyValueError::new_err(format!(
                            "tokens need 2 dimensions, got {}",
                            shape.len()
                        )));
                    }
                };
                let starts: Vec<usize> = (0..=records).map(|record| record * steps).collect();
                run_short(py, || self.run(&params, Inputs::Tokens { tokens, starts: &starts }))?
                    .map_err(to_python)?
            }
        };
        let mut shape = vec![records];
        if let Shape::Sequence { width, .. } = self.output {
            shape.push(values.len() / (records * width).max(1));
        }
        shape.push(self.output_width());
        let array = ArrayD::from_shape_vec(IxDyn(&shape), values);
        Ok(array.map_err(|error| PyValueError::new_err(error.to_string()))?.into_pyarray(py))
    }
}

impl Network {
    /// The outputs, and the number of records.
    fn run(&self, params: &Params, inputs: Inputs<'_>) -> Result<(Vec<f32>, usize), NetworkError> {
        let mut engine = Engine::without_loss(nn::Network::new(&self.description)?)?;
        let inputs = engine.unlabelled(inputs)?;
        let chosen: Vec<usize> = (0..inputs.len()).collect();
        Ok((engine.outputs(params, &inputs, &chosen)?, chosen.len()))
    }
}

/// A description of a network in JSON.
pub(crate) fn description(text: &str) -> PyResult<Description> {
    serde_json::from_str(text).map_err(|error| {
        PyValueError::new_err(format!("the description of the network is not valid: {error}"))
    })
}

/// Weights by name as one flat vector.
pub(crate) fn params(description: &Description, weights: &Bound<'_, PyDict>) -> PyResult<Params> {
    let network = nn::Network::new(description).map_err(to_python)?;
    let mut params = Params::zeros(network.layout().clone());
    for (name, array) in weights.iter() {
        let name: String = name.extract()?;
        let Some(slice) = network.layout().get(&name) else {
            return Err(PyValueError::new_err(format!("the network has no parameter {name}")));
        };
        let array: PyReadonlyArrayDyn<'_, f32> = array
            .extract()
            .map_err(|_| PyValueError::new_err(format!("{name} must be an array of float32")))?;
        if array.shape() != slice.shape {
            let (expected, got) = (&slice.shape, array.shape());
            return Err(PyValueError::new_err(format!(
                "{name} must have the shape {expected:?}, got {got:?}"
            )));
        }
        params.values_mut()[slice.range.clone()].copy_from_slice(contiguous(&array, &name)?);
    }
    for slice in network.layout().slices() {
        if !weights.contains(&slice.name)? {
            return Err(PyValueError::new_err(format!(
                "weights must have an array for each parameter, but {} is missing",
                slice.name
            )));
        }
    }
    Ok(params)
}

/// The values of a C-contiguous array.
fn contiguous<'a, T: numpy::Element>(array: &'a PyReadonlyArrayDyn<'_, T>, name: &str) -> PyResult<&'a [T]> {
    let values = array.as_slice().ok().filter(|_| array.is_c_contiguous());
    values.ok_or_else(|| {
        PyValueError::new_err(format!("{name} must be C-contiguous; use np.ascontiguousarray"))
    })
}
