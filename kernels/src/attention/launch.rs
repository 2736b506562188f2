//! Device memory, tensor maps and the launch of the attention kernel.

use super::inputs::PreparedV;
use super::{Inputs, Knobs, PvMode, Shape, Topology};
use crate::bindings::kbt_attention_params;
use kbt_gpu::{
    Args, Buffer, ElementType, Function, Gpu, GpuError, LaunchShape, OobFill, Swizzle, TensorMap, Tiled,
};
use kbt_tensor::{Dtype, Tensor, TensorError, TensorSet};
use kbt_trace::{BufferLayout, TraceError};

/// Why the kernel could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttentionError {
    /// The device or driver.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The inputs.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// An input of another shape than the one asked for.
    #[error("input `{name}` is {found}; expected {expected}")]
    Input {
        /// The tensor.
        name: &'static str,
        /// Its type and shape.
        found: String,
        /// What was expected.
        expected: String,
    },
}

/// A kernel with its inputs on the device, ready to launch any number of times.
pub struct Prepared {
    gpu: Gpu,
    function: Function,
    shape: Shape,
    launch: LaunchShape,
    maps: [TensorMap; 3],
    params: kbt_attention_params,
    o: Buffer,
    lse: Buffer,
    trace: Option<(BufferLayout, Buffer)>,
    // Only referred to by address.
    _inputs: Vec<Buffer>,
}

impl Prepared {
    /// Loads the machine code and uploads the inputs. Scores are multiplied by `scale`, which is positive.
    pub fn new(
        gpu: &Gpu,
        cubin: &[u8],
        knobs: &Knobs,
        shape: Shape,
        scale: f64,
        inputs: &Inputs,
    ) -> Result<Self, AttentionError> {
        let function = gpu.load(cubin)?.function("attention_forward")?;
        let [q, k] = [bf16_input(inputs, "q", &shape)?, bf16_input(inputs, "k", &shape)?];
        bf16_input(inputs, "v", &shape)?;
        let v = inputs.prepare_v(&shape, knobs.pv_mode)?;
        let (q, k) = (gpu.upload(q.bytes())?, gpu.upload(k.bytes())?);
        let (v_buffer, v_scale) =
            (gpu.upload(&v.bytes)?, v.scale.as_deref().map(|s| gpu.upload(s)).transpose()?);
        let d = Shape::HEAD_DIM as u32;
        let maps = [
            rows_map(gpu, &q, &shape, 64)?,
            rows_map(gpu, &k, &shape, 128)?,
            match knobs.pv_mode {
                PvMode::Fp8 => transposed_map(gpu, &v_buffer, &v, &shape)?,
                PvMode::Bf16 | PvMode::Fp4 => rows_map(gpu, &v_buffer, &shape, d)?,
            },
        ];
        let mut o = gpu.alloc(2 * shape.elements())?;
        let mut lse = gpu.alloc(4 * shape.elements() / Shape::HEAD_DIM)?;
        // An element that the kernel does not write must not look like a result.
        o.poison()?;
        lse.poison()?;
        let row = Shape::HEAD_DIM as i64;
        let params = kbt_attention_params {
            o: o.address(),
            o_stride_batch: row * (shape.seqlen * shape.heads) as i64,
            o_stride_head: row * shape.seqlen as i64,
            o_stride_row: row,
            lse: lse.address(),
            v_scale: v_scale.as_ref().map_or(0, Buffer::address),
            heads: shape.heads as i32,
            seqlen: shape.seqlen as i32,
            causal: shape.causal.into(),
            scale_log2: (scale * std::f64::consts::LOG2_E) as f32,
        };
        let launch = LaunchShape {
            grid: [shape.seqlen.div_ceil(128) as u32, shape.heads as u32, shape.batch as u32],
            block: [if knobs.topology == Topology::Registers { 384 } else { 512 }, 1, 1],
            dynamic_smem: shared_bytes(knobs),
            ..LaunchShape::linear(1, 1)
        };
        let _inputs = [Some(q), Some(k), Some(v_buffer), v_scale].into_iter().flatten().collect();
        Ok(Self { gpu: gpu.clone(), function, shape, launch, maps, params, o, lse, trace: None, _inputs })
    }

    /// Gives the launches a trace buffer: `ctas` CTAs spread over the grid, `capacity` records (a power of two) for
    /// each of their roles.
    pub fn record(&mut self, roles: u32, ctas: u32, capacity: u32) -> Result<(), AttentionError> {
        let [x, y, z] = self.launch.grid;
        let total = x * y * z;
        let ctas = ctas.min(total);
        let layout = BufferLayout::new(roles, capacity, total / ctas, ctas)?;
        let buffer = self.gpu.zeros(layout.bytes())?;
        self.trace = Some((layout, buffer));
        Ok(())
    }

    /// Launches once, without waiting.
    pub fn launch(&self) -> Result<(), GpuError> {
        let mut args = Args::new();
        for map in self.maps {
            args.push(map);
        }
        args.push(self.params);
        args.push(match &self.trace {
            Some((layout, buffer)) => layout.buffer(buffer.address()),
            None => BufferLayout::no_buffer(),
        });
        // SAFETY: the five arguments are those of attention_forward; every address is of a buffer that lives as
        // long as `self`, and a caller reads results only through methods that wait for the stream.
        unsafe { self.gpu.launch(&self.function, self.launch, &mut args) }
    }

    /// Clears the trace buffer, so that the next launch records from the start.
    pub fn clear_trace(&mut self) -> Result<(), GpuError> {
        self.trace.as_mut().map_or(Ok(()), |(_, buffer)| buffer.fill(0))
    }

    /// The raw trace of the last launch.
    pub fn trace(&self) -> Result<Option<(BufferLayout, Vec<u8>)>, GpuError> {
        self.trace.as_ref().map(|(layout, buffer)| Ok((*layout, buffer.read()?))).transpose()
    }

    /// The outputs: `o` in bf16 `[batch, heads, seqlen, 128]`, `lse` in f32 `[batch, heads, seqlen]`.
    pub fn outputs(&self) -> Result<TensorSet, AttentionError> {
        let mut set = TensorSet::new();
        set.insert(Tensor::new("o", Dtype::Bf16, self.shape.dims(), self.o.read()?)?)?;
        let rows = self.shape.dims()[..3].to_vec();
        set.insert(Tensor::new("lse", Dtype::F32, rows, self.lse.read()?)?)?;
        Ok(set)
    }

    /// The compiled kernel.
    #[must_use]
    pub const fn function(&self) -> &Function {
        &self.function
    }
}

fn bf16_input<'a>(
    inputs: &'a Inputs,
    name: &'static str,
    shape: &Shape,
) -> Result<&'a Tensor, AttentionError> {
    let tensor = inputs.tensors.require(name)?;
    if tensor.dtype() != Dtype::Bf16 || tensor.shape() != shape.dims() {
        return Err(AttentionError::Input {
            name,
            found: format!("{} {:?}", tensor.dtype(), tensor.shape()),
            expected: format!("bf16 {:?}", shape.dims()),
        });
    }
    Ok(tensor)
}

/// bf16 `[batch][heads][seqlen][128]`, loaded as boxes of 64 columns and `rows` rows.
fn rows_map(gpu: &Gpu, buffer: &Buffer, shape: &Shape, rows: u32) -> Result<TensorMap, GpuError> {
    let (s, h, b, d) = (shape.seqlen as u64, shape.heads as u64, shape.batch as u64, Shape::HEAD_DIM as u64);
    TensorMap::tiled(
        gpu,
        &Tiled {
            element: ElementType::Bf16,
            address: buffer.address(),
            dims: vec![d, s, h, b],
            strides: vec![2 * d, 2 * d * s, 2 * d * s * h],
            box_dims: vec![64, rows, 1, 1],
            swizzle: Swizzle::B128,
            oob_fill: OobFill::Zeros,
        },
    )
}

/// e4m3 `[batch][heads][128][keys]`, loaded as boxes of 128 keys and 128 columns of V.
fn transposed_map(gpu: &Gpu, buffer: &Buffer, v: &PreparedV, shape: &Shape) -> Result<TensorMap, GpuError> {
    let (row, h, b, d) = (v.row_bytes as u64, shape.heads as u64, shape.batch as u64, Shape::HEAD_DIM as u64);
    TensorMap::tiled(
        gpu,
        &Tiled {
            element: ElementType::U8,
            address: buffer.address(),
            dims: vec![row, d, h, b],
            strides: vec![row, row * d, row * d * h],
            box_dims: vec![128, 128, 1, 1],
            swizzle: Swizzle::B128,
            oob_fill: OobFill::Zeros,
        },
    )
}

/// Upper bound on `sizeof(Shared)` of attention.cu: tiles, then at most 3 KiB of scales and barriers.
const fn shared_bytes(knobs: &Knobs) -> u32 {
    const KIB: u32 = 1024;
    let fp8 = matches!(knobs.pv_mode, PvMode::Fp8);
    let (q, k, v) = (32 * KIB, 64 * KIB, if fp8 { 32 * KIB } else { 64 * KIB });
    let p = match knobs.topology {
        Topology::Registers => KIB,
        Topology::Smem if fp8 => 32 * KIB,
        Topology::Smem => 64 * KIB,
    };
    q + k + v + p + 3 * KIB
}
