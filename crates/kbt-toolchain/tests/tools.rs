//! The real tools, from KBT_CUDA.
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

use kbt_device::Arch;
use kbt_toolchain::{NvccOptions, NvccOutput, NvdisasmOptions, PtxasOptions, Tool, ToolError, Toolchain};

const PTX: &str = "\
.version 8.0
.target sm_90a
.address_size 64
.visible .entry scale(.param .u64 p) {
  .reg .f32 %f<3>; .reg .u64 %a;
  ld.param.u64 %a, [p];
  ld.global.f32 %f1, [%a];
  ex2.approx.ftz.f32 %f2, %f1;
  st.global.f32 [%a], %f2;
  ret;
}
";

/// The tools under test; without KBT_CUDA there are none, and the test says that it did not run.
fn tools(test: &str) -> Option<Toolchain> {
    if std::env::var_os("KBT_CUDA").is_none() {
        eprintln!(
            "KBT_CUDA is not set: `{test}` did not run; `cargo xtask test` sets it after `cargo xtask setup`"
        );
        return None;
    }
    Some(Toolchain::find().expect("KBT_CUDA has the tools"))
}

#[test]
fn ptx_becomes_a_cubin_and_a_listing() {
    let Some(tools) = tools("ptx_becomes_a_cubin_and_a_listing") else { return };
    let with_nuls = [PTX.as_bytes(), b"\0\0\0"].concat();
    let made = tools.ptxas(&with_nuls, Arch::SM_90A, &PtxasOptions::default()).unwrap();
    let usage = made.resources.function("scale").unwrap();
    assert!(usage.registers.is_some_and(|n| n > 0) && usage.arch.as_deref() == Some("sm_90a"));
    assert_eq!(made.version, tools.version(Tool::Ptxas).unwrap());
    assert_eq!(made.provenance().by, format!("ptxas {}", made.version));
    let plain = tools.disassemble(&made.cubin, &NvdisasmOptions::default()).unwrap();
    assert!(plain.contains("MUFU.EX2"), "{plain}");
    let hex = NvdisasmOptions { hex: true, ..NvdisasmOptions::default() };
    assert!(tools.disassemble(&made.cubin, &hex).unwrap().contains("/* 0x"));
}

#[test]
fn the_compilers_own_message_comes_back() {
    let Some(tools) = tools("the_compilers_own_message_comes_back") else { return };
    let bad = PTX.replace("ex2.approx.ftz.f32", "ex3.approx.f32");
    let error = tools.ptxas(bad.as_bytes(), Arch::SM_90A, &PtxasOptions::default()).unwrap_err();
    let ToolError::Failed { tool: Tool::Ptxas, log, .. } = &error else { panic!("{error}") };
    assert!(log.contains("kernel.ptx, line 8"), "{log}");
    let error = tools.disassemble(b"no cubin", &NvdisasmOptions::default()).unwrap_err().to_string();
    assert!(error.contains("nvdisasm"), "{error}");
}

#[test]
fn cuda_code_with_half_precision_headers_compiles() {
    let Some(tools) = tools("cuda_code_with_half_precision_headers_compiles") else { return };
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("include")).unwrap();
    std::fs::write(dir.path().join("include/factor.h"), "#define FACTOR 3.0f\n").unwrap();
    let source = dir.path().join("scale.cu");
    std::fs::write(
        &source,
        "#include <cuda_fp16.h>\n#include <cuda_fp8.h>\n#include <factor.h>\n\
         extern \"C\" __global__ void scale(half *out, const float *in) {\n\
           out[threadIdx.x] = __float2half(in[threadIdx.x] * FACTOR + OFFSET);\n}\n",
    )
    .unwrap();
    let options = NvccOptions::new(Arch::SM_90A).define("OFFSET", "1.0f").include(dir.path().join("include"));
    let made = tools.nvcc(&source, &options).unwrap();
    assert!(made.bytes.starts_with(b"\x7fELF"));
    assert!(made.resources.function("scale").unwrap().registers.is_some());
    let ptx = tools.nvcc(&source, &NvccOptions { output: NvccOutput::Ptx, ..options }).unwrap();
    assert!(String::from_utf8(ptx.bytes).unwrap().contains(".target sm_90a"));
    let error = tools.nvcc(&source, &NvccOptions::new(Arch::SM_90A)).unwrap_err().to_string();
    assert!(error.contains("factor.h"), "{error}");
}
