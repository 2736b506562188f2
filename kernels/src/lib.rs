//! The built-in kernels: embedded machine code, variants compiled on demand, and how to launch them.

pub mod attention;
pub mod cache;
pub mod variant;
