//! A residual block.

use serde::{Deserialize, Serialize};

use super::{Composite, Form, LayerType};
use crate::description::LayerDescription;
use crate::error::NetworkError;
use crate::graph_builder::{GraphBuilder, Position, Source, Value};
use crate::shape::Shape;
use crate::shapes::real_values;

/// `body(x) + shortcut(x)`; an empty shortcut is `x` itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Residual {
    /// The layers of the body.
    pub body: Vec<LayerDescription>,
    /// The layers of the shortcut.
    #[serde(default)]
    pub shortcut: Vec<LayerDescription>,
}

impl Residual {
    /// `body(x) + x`.
    pub fn new(body: Vec<LayerDescription>) -> Residual {
        Residual { body, shortcut: Vec::new() }
    }
}

impl LayerType for Residual {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        match self.body.is_empty() {
            true => Err("needs at least one layer in its body".to_owned()),
            // The shape follows from the branches.
            false => real_values(input),
        }
    }

    fn form(&self) -> Form<'_> {
        Form::Composite(self)
    }
}

impl Composite for Residual {
    fn add_to(
        &self,
        graph: &mut GraphBuilder,
        at: &Position,
        input: &Source,
        _: Shape,
    ) -> Result<Value, NetworkError> {
        let body = graph.branch(&self.body, at, "body", input)?;
        let shortcut = graph.branch(&self.shortcut, at, "shortcut", input)?;
        if body.shape != shortcut.shape {
            return Err(at.error(format!(
                "the body gives {}, but the shortcut gives {}; they are added and must agree",
                body.shape, shortcut.shape
            )));
        }
        Ok(graph.add(body, shortcut))
    }
}
