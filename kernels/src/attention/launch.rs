//! Device memory, tensor maps and the launch of the attention kernel.

use super::inputs::PreparedV;
use super::{Inputs, Knobs, PvMode, Shape};
use crate::bindings::{kbt_attention_config, kbt_attention_params};
use kbt_gpu::{
    Args, Buffer, ElementType, Function, Gpu, GpuError, LaunchShape, Module, OobFill, Swizzle, TensorMap,
    Tiled,
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
    /// Machine code for another head dimension.
    #[error("the kernel is compiled for head dimension {compiled}, the shape has {asked}")]
    HeadDim {
        /// Of the machine code.
        compiled: u32,
        /// Of the shape.
        asked: usize,
    },
    /// Machine code that does not say what it was compiled as.
    #[error("attention_config of the machine code has {bytes} bytes, expected {}", size_of::<kbt_attention_config>())]
    Config {
        /// Its size.
        bytes: usize,
    },
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
    config: kbt_attention_config,
    launch: LaunchShape,
    maps: [TensorMap; 3],
    params: kbt_attention_params,
    o: Buffer,
    lse: Buffer,
    trace: Option<(BufferLayout, Buffer)>,
    // Only referred to by address.
    _held: Vec<Buffer>,
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
        let module = gpu.load(cubin)?;
        let function = module.function("attention_forward")?;
        let config = config(&module)?;
        if config.head_dim as usize != shape.head_dim {
            return Err(AttentionError::HeadDim { compiled: config.head_dim, asked: shape.head_dim });
        }
        let q = bf16_input(inputs, "q", shape.dims())?;
        let k = bf16_input(inputs, "k", shape.dims_kv())?;
        bf16_input(inputs, "v", shape.dims_kv())?;
        let v = inputs.prepare_v(&shape, knobs.pv_mode)?;
        let (q, k) = (gpu.upload(q.bytes())?, gpu.upload(k.bytes())?);
        let (v_buffer, v_scale) =
            (gpu.upload(&v.bytes)?, v.scale.as_deref().map(|s| gpu.upload(s)).transpose()?);
        let maps = [
            rows_map(gpu, &q, &shape.dims(), config.q_box_rows)?,
            rows_map(gpu, &k, &shape.dims_kv(), config.tile_n)?,
            match knobs.pv_mode {
                PvMode::Fp8 => transposed_map(gpu, &v_buffer, &v, &shape, config.v_box)?,
                PvMode::Bf16 | PvMode::Fp4 => rows_map(gpu, &v_buffer, &shape.dims_kv(), config.tile_n)?,
            },
        ];
        let mut o = gpu.alloc(2 * shape.elements())?;
        let mut lse = gpu.alloc(4 * shape.elements() / shape.head_dim)?;
        // An element that the kernel does not write must not look like a result.
        o.poison()?;
        lse.poison()?;
        let counters = gpu.zeros(8)?;
        let row = shape.head_dim as i64;
        let heads_per_kv = shape.heads / shape.heads_kv;
        let params = kbt_attention_params {
            o: o.address(),
            o_stride_batch: row * (shape.seqlen * shape.heads) as i64,
            o_stride_head: row * shape.seqlen as i64,
            o_stride_row: row,
            lse: lse.address(),
            v_scale: v_scale.as_ref().map_or(0, Buffer::address),
            counters: counters.address(),
            batch: shape.batch as i32,
            heads: shape.heads as i32,
            heads_per_kv: heads_per_kv as i32,
            seqlen: shape.seqlen as i32,
            causal: shape.causal.into(),
            heads_at_a_time: heads_at_a_time(&shape) as i32,
            scale_log2: (scale * std::f64::consts::LOG2_E) as f32,
        };
        let tiles = shape.seqlen.div_ceil(config.tile_m as usize) * shape.heads * shape.batch;
        let launch = LaunchShape {
            grid: [tiles.min(gpu.info().sm_count as usize) as u32, 1, 1],
            block: [config.threads, 1, 1],
            dynamic_smem: config.shared_bytes,
            ..LaunchShape::linear(1, 1)
        };
        let held =
            [Some(q), Some(k), Some(v_buffer), v_scale, Some(counters)].into_iter().flatten().collect();
        let trace = None;
        Ok(Self {
            gpu: gpu.clone(),
            function,
            shape,
            config,
            launch,
            maps,
            params,
            o,
            lse,
            trace,
            _held: held,
        })
    }

    /// Gives the launches a trace buffer: `ctas` CTAs spread over the grid, `capacity` records (a power of two) for
    /// each of their roles.
    pub fn record(&mut self, ctas: u32, capacity: u32) -> Result<(), AttentionError> {
        let [x, y, z] = self.launch.grid;
        let total = x * y * z;
        let ctas = ctas.min(total);
        let layout = BufferLayout::new(self.config.roles, capacity, total / ctas, ctas)?;
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

    /// The outputs: `o` in bf16 `[batch, heads, seqlen, head dimension]`, `lse` in f32 `[batch, heads, seqlen]`.
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

/// What the machine code says of itself.
fn config(module: &Module) -> Result<kbt_attention_config, AttentionError> {
    let bytes = module.variable("attention_config")?;
    let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let &[threads, shared_bytes, head_dim, tile_m, tile_n, q_box_rows, v_box, roles] = words.as_slice()
    else {
        return Err(AttentionError::Config { bytes: bytes.len() });
    };
    Ok(kbt_attention_config { threads, shared_bytes, head_dim, tile_m, tile_n, q_box_rows, v_box, roles })
}

/// Query heads whose K and V take at most 32 MiB of the L2 cache, by whole heads of K and V.
fn heads_at_a_time(shape: &Shape) -> usize {
    const BYTES: usize = 32 << 20;
    let kv_heads = (BYTES / (4 * shape.seqlen * shape.head_dim)).max(1);
    (kv_heads * (shape.heads / shape.heads_kv)).min(shape.heads * shape.batch)
}

fn bf16_input<'a>(
    inputs: &'a Inputs,
    name: &'static str,
    dims: Vec<usize>,
) -> Result<&'a Tensor, AttentionError> {
    let tensor = inputs.tensors.require(name)?;
    if tensor.dtype() != Dtype::Bf16 || tensor.shape() != dims {
        return Err(AttentionError::Input {
            name,
            found: format!("{} {:?}", tensor.dtype(), tensor.shape()),
            expected: format!("bf16 {dims:?}"),
        });
    }
    Ok(tensor)
}

/// bf16 `[batch][heads][seqlen][head dimension]`, loaded as boxes of 64 columns and `rows` rows.
fn rows_map(gpu: &Gpu, buffer: &Buffer, dims: &[usize], rows: u32) -> Result<TensorMap, GpuError> {
    let [b, h, s, d] = [0, 1, 2, 3].map(|i| dims[i] as u64);
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

/// e4m3 `[batch][heads][head dimension][keys]`, loaded as boxes of so many keys and all columns of V.
fn transposed_map(
    gpu: &Gpu,
    buffer: &Buffer,
    v: &PreparedV,
    shape: &Shape,
    keys: u32,
) -> Result<TensorMap, GpuError> {
    let (row, h, b, d) =
        (v.row_bytes as u64, shape.heads_kv as u64, shape.batch as u64, shape.head_dim as u64);
    TensorMap::tiled(
        gpu,
        &Tiled {
            element: ElementType::U8,
            address: buffer.address(),
            dims: vec![row, d, h, b],
            strides: vec![row, row * d, row * d * h],
            box_dims: vec![keys, d as u32, 1, 1],
            swizzle: Swizzle::B128,
            oob_fill: OobFill::Zeros,
        },
    )
}
