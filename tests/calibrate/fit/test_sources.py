"""Readers of kernel files: what a line becomes."""

from pathlib import Path

import pytest

from bsprof.accounting.work import WorkClass
from bsprof.calibrate.fit.sources import attention, convolutions, products, streams
from bsprof.calibrate.fit.sources.table import lines_of, thinned, whole
from bsprof.errors import CalibrationError


@pytest.fixture
def write(tmp_path):
    def made(name: str, *lines: str) -> Path:
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return tmp_path

    return made


def test_aiconfigurator_products(write):
    folder = write(
        "aiconfigurator_gemm.csv",
        "gpu,dtype,m,n,k,latency_us,source",
        "NVIDIA L40S,bfloat16,128,4096,1024,20.5,AIC",
        "NVIDIA L40S,fp8,128,4096,1024,11.5,AIC",
        "NVIDIA Unknown,bfloat16,128,4096,1024,20.5,AIC",
    )
    (row,) = products.aiconfigurator(folder)
    assert (row.work.m, row.work.n, row.work.k, row.work.compute) == (128, 4096, 1024, "bf16")
    assert row.work.flops == 2 * 128 * 4096 * 1024
    assert row.work.bytes == 2 * (128 * 1024 + 1024 * 4096 + 128 * 4096)
    assert (row.device, row.seconds, row.has_floor) == ("l40s", 20.5e-6, False)


def test_neusight_layers_fold_their_batch(write):
    folder = write(
        "neusight_matmul_fp32.csv",
        "gpu,op,b,m,n,k,latency_us",
        "T4,linear,4,32,64,128,90",
        "T4,bmm,4,32,64,128,90",
    )
    linear, batched = products.neusight(folder)
    assert (linear.work.m, linear.work.work_class) == (128, WorkClass.MATMUL)
    assert (batched.work.batch, batched.work.work_class) == (4, WorkClass.BATCHED_MATMUL)
    assert linear.work.flops == batched.work.flops
    assert linear.has_floor


def test_ticks_of_a_coarse_clock_are_left_out(write):
    folder = write(
        "vidur_compute_fp16.csv",
        "gpu,op,m,n,k,bytes_ideal,latency_us",
        "A100-80GB,gemm,8,64,64,1e4,3",
        "A100-80GB,gemm,8192,4096,4096,2e8,1200",
        "A100-80GB,add,8192,,,1e8,70",
        "A100-80GB,norm,8192,,,1e8,90",
    )
    assert [row.seconds for row in products.vidur(folder)] == [1200e-6]
    (add,) = streams.vidur(folder)
    assert (add.work.work_class, add.work.bytes) == (WorkClass.ELEMENTWISE, 10**8)


def test_notebooks_with_tf32_are_known(write):
    folder = write(
        "mli_layer_batch_sweeps.csv",
        "gpu,env,op,dtype,n,latency_us",
        "RTX3090Ti,e,matmul_square,float32,8192,26000",
        "RTX4090,e,matmul_square,float32,8192,20000",
        "RTX4090,e,matmul_square,float32,512,18",
        "RTX4090,e,layer_bert_large,float16,,2000",
    )
    assert [row.work.compute for row in products.single_layers(folder)] == ["tf32", "fp32"]


DEEPBENCH = "gpu,op,dtype,m,n,k,batch,c_in,c_out,w,h,kw,kh,pad_w,pad_h,stride_w,stride_h,latency_us"


def test_deepbench_convolutions(write):
    shape = ",,,,16,64,128,56,56,3,3,1,1,2,2"
    folder = write(
        "deepbench_train.csv",
        DEEPBENCH,
        f"V100,conv_fwd,fp16_tc{shape},100",
        f"V100,conv_bwd_input,fp32{shape},200",
        f"V100,conv_bwd_weight,fp32{shape},300",
        f"P100,conv_fwd,fp16_in_fp32_math{shape},400",
        "V100,gemm,fp32,64,64,5e+05,,,,,,,,,,,,900",
    )
    forward, data, weight = convolutions.deepbench(folder)
    pixels = 16 * 28 * 28
    assert (forward.work.m, forward.work.n, forward.work.k) == (pixels, 128, 64 * 9)
    assert (data.work.m, data.work.n, data.work.k) == (pixels, 64 * 9, 128)
    assert (weight.work.m, weight.work.n, weight.work.k) == (64 * 9, 128, pixels)
    assert forward.work.flops == data.work.flops == 2 * pixels * 128 * 64 * 9
    assert forward.extra_bytes == 2 * 2 * (16 * 64 * 56 * 56 + 16 * 128 * 28 * 28)
    assert data.extra_bytes == 0
    (gemm,) = products.deepbench(folder)
    assert gemm.work.k == 500_000


def test_kernelbench_convolutions(write):
    folder = write(
        "kernelbench_torch_eager.csv",
        "gpu,host,level,op,input_shapes,init_args,latency_us",
        "NVIDIA L4,x,level1,63_conv_standard_2D__square,16x3x256x256,"
        "groups=1;dilation=1;padding=0;stride=1;in_channels=3;out_channels=64;kernel_size=3,1000",
        "NVIDIA L4,x,level1,57_conv_transposed_2D__square,16x32x128x128,"
        "groups=1;padding=0;stride=1;in_channels=32;out_channels=64;kernel_size=3,1100",
        "NVIDIA L4,x,level1,82_conv_depthwise_2D_square,16x3x256x256,"
        "padding=0;stride=1;in_channels=3;kernel_size=3,140",
        "NVIDIA L4,x,level1,80_conv_standard_2D_dilated,16x3x256x256,"
        '"dilation=(2, 1);padding=(1, 2);in_channels=3;out_channels=64;kernel_size=(3, 5)",1000',
        "NVIDIA L4,x,level2,1_conv_standard_2D,16x3x256x256,,1000",
    )
    plain, transposed, depthwise = convolutions.kernelbench(folder)
    assert plain.work.flops == pytest.approx(3.5675e9, rel=1e-3)
    assert transposed.work.work_class is WorkClass.CONVOLUTION_DATA
    assert transposed.work.flops == pytest.approx(9.6637e9, rel=1e-3)
    assert (depthwise.work.batch, depthwise.work.n) == (3, 1)
    assert {row.work.compute for row in (plain, transposed, depthwise)} == {"tf32"}


def test_published_rates_become_seconds(write):
    folder = write(
        "attention_published.csv",
        "gpu,impl,pass,dtype,batch,heads,seq_len,head_dim,causal,tflops,latency_us,source",
        "RTX4090,FA2,fwd,float16,4,32,8192,128,0,164,26817,chart",
        "RTX4090,FA2,bwd,float16,,,2048,128,1,99.23,,table",
        "A100-SXM4-80GB,xformers,fwd+bwd,float16,32,32,512,64,0,68,3537.03,chart",
        "RTX4090,torch_math,fwd,float16,4,32,1024,128,0,46,1493.9,chart",
    )
    forward, backward = attention.published(folder)
    assert forward.seconds == pytest.approx(26817e-6)
    assert forward.work.flops / forward.seconds == pytest.approx(164e12, rel=0.01)
    assert backward.work.backward
    flops = 10 * backward.work.batch * 2048**2 * 128 / 2
    assert flops / backward.seconds == pytest.approx(99.23e12)
    (both,) = attention.both_passes(folder)
    apart = attention.backward_of(both, 1e-3)
    assert apart.seconds == pytest.approx(2537.03e-6)
    assert apart.work.work_class is WorkClass.ATTENTION_BACKWARD
    assert apart.work.flops == 2.5 * both.work.flops


def test_liger_backward_is_full_less_forward(write):
    config = '"{""M"": 4096, ""dtype"": ""torch.float32"", ""eps"": 1e-06}"'
    start = "NVIDIA A100-SXM4-80GB,layer_norm,huggingface"
    folder = write(
        "liger_ops.csv",
        "gpu,op,impl,pass,metric_name,x_value,median,config,source",
        f"{start},forward,speed,1024,0.034,{config},L",
        f"{start},full,speed,1024,0.119,{config},L",
        f"{start},full,memory,1024,77,{config},L",
        f"NVIDIA A100-SXM4-80GB,layer_norm,liger,forward,speed,1024,0.02,{config},L",
    )
    forward, backward = streams.liger(folder)
    assert forward.seconds == pytest.approx(34e-6)
    assert backward.seconds == pytest.approx(85e-6)
    assert (forward.work.rows, forward.work.columns) == (4096, 1024)
    assert backward.work.bytes == 1.5 * forward.work.bytes


def test_optimizers_by_their_passes(write):
    folder = write(
        "optimizer_published.csv",
        "gpu,op,impl,params_M,latency_us",
        "A100-SXM4-80GB,optimizer_AdamW,torch default (foreach),10,849",
        "A100-SXM4-80GB,optimizer_AdamW,fused Triton,10,287.9",
        "A100-SXM4-80GB,optimizer_Lion,fused Triton,10,199",
    )
    foreach, fused = streams.optimizers(folder)
    assert foreach.work.bytes == 3 * fused.work.bytes == 84 * 10**7
    assert fused.work.work_class is WorkClass.OPTIMIZER_FUSED


def test_a_missing_column_is_named(write):
    folder = write("x.csv", "gpu,m", "a,1")
    with pytest.raises(CalibrationError, match=r"no column 'n'"):
        lines_of(folder / "x.csv", ("gpu", "n"))
    with pytest.raises(CalibrationError, match="cannot read"):
        lines_of(folder / "y.csv", ("gpu",))


def test_thinning_is_even():
    assert thinned(range(10), 5) == [0, 2, 4, 6, 8]
    assert thinned(range(3), 5) == [0, 1, 2]
    assert whole("5e+05") == 500_000
