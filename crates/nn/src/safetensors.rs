//! Parameters as safetensors files, with PyTorch's names and shapes.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::error::NetworkError;
use crate::params::{Layout, Params};

impl Params {
    /// The parameters as the bytes of a safetensors file; reading them restores the same bits.
    ///
    /// # Errors
    /// None are known: the layout's shapes fit its values.
    pub fn to_safetensors(&self) -> Result<Vec<u8>, NetworkError> {
        self.to_safetensors_noting(HashMap::new())
    }

    /// The same, with entries in the file's metadata.
    ///
    /// # Errors
    /// None are known.
    pub fn to_safetensors_noting(&self, notes: HashMap<String, String>) -> Result<Vec<u8>, NetworkError> {
        let notes = Some(notes).filter(|notes| !notes.is_empty());
        let bytes: Vec<u8> = self.values().iter().flat_map(|value| value.to_le_bytes()).collect();
        let views = self.layout().slices().iter().map(|slice| {
            let data = &bytes[4 * slice.range.start..4 * slice.range.end];
            TensorView::new(Dtype::F32, slice.shape.clone(), data).map(|view| (slice.name.as_str(), view))
        });
        let views: Result<Vec<_>, _> = views.collect();
        views
            .and_then(|views| safetensors::serialize(views, notes))
            .map_err(|error| NetworkError::Parameters(format!("cannot write the parameters: {error}")))
    }

    /// Reads the bytes of a safetensors file: every parameter of the layout by name and shape, as 32-bit floats.
    ///
    /// # Errors
    /// If a parameter is missing, has another shape or another type, or is not part of the layout.
    pub fn from_safetensors(layout: Arc<Layout>, bytes: &[u8]) -> Result<Params, NetworkError> {
        let refuse = |problem: String| Err(NetworkError::Parameters(problem));
        let tensors = match SafeTensors::deserialize(bytes) {
            Ok(tensors) => tensors,
            Err(error) => return refuse(format!("not a safetensors file: {error}")),
        };
        let known: HashSet<&str> = layout.slices().iter().map(|slice| slice.name.as_str()).collect();
        if let Some(name) = tensors.names().into_iter().find(|name| !known.contains(name)) {
            return refuse(format!("{name} is not a parameter of this network"));
        }
        let mut params = Params::zeros(layout.clone());
        for slice in layout.slices() {
            let Ok(tensor) = tensors.tensor(&slice.name) else {
                return refuse(format!(
                    "{} is missing; the network has it with shape {:?}",
                    slice.name, slice.shape
                ));
            };
            if tensor.dtype() != Dtype::F32 {
                return refuse(format!("{} is {:?}; save it as 32-bit floats", slice.name, tensor.dtype()));
            }
            if tensor.shape() != slice.shape {
                return refuse(format!(
                    "{} has shape {:?}, but the network needs {:?}",
                    slice.name,
                    tensor.shape(),
                    slice.shape
                ));
            }
            let values = &mut params.values_mut()[slice.range.clone()];
            for (value, bytes) in values.iter_mut().zip(tensor.data().chunks_exact(4)) {
                *value = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
        }
        Ok(params)
    }

    /// Writes a safetensors file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), NetworkError> {
        fs::write(path, self.to_safetensors()?).map_err(|error| in_file(path, &error))
    }

    /// Reads a safetensors file.
    ///
    /// # Errors
    /// If the file cannot be read, or its parameters do not fit the layout.
    pub fn load(layout: Arc<Layout>, path: &Path) -> Result<Params, NetworkError> {
        let bytes = fs::read(path).map_err(|error| in_file(path, &error))?;
        Params::from_safetensors(layout, &bytes).map_err(|error| in_file(path, &error))
    }
}

fn in_file(path: &Path, problem: &dyn std::fmt::Display) -> NetworkError {
    NetworkError::File { path: path.display().to_string(), problem: problem.to_string() }
}
