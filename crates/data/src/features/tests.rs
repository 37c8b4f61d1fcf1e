//! Tests of the transform.
