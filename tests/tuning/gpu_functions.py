"""Functions that are tuned on a GPU in tests; importable in every process. What one of them saw is a line of JSON in a file."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

SPACE: dict[str, Any] = {"rate": (1e-3, 1.0, "log"), "width": [8, 16, 32]}


def note(**seen: Any) -> None:
    """Append one line to the file that the test has named."""
    with Path(os.environ["FEDBO_GPU_NOTES"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(seen | {"pid": os.getpid()}) + "\n")


def process(config: dict[str, Any]) -> float:
    """Note which GPU is visible."""
    note(visible=os.environ.get("CUDA_VISIBLE_DEVICES"))
    return float(config["rate"])


def training(config: dict[str, Any], agent: int) -> float:
    """Train a small network on a GPU to fit a sine of another frequency at each agent; return its squared error."""
    import torch

    begun = time.time()
    assert torch.cuda.device_count() == 1, "a share of one GPU shows one GPU"
    generator = torch.Generator().manual_seed(agent)
    x = torch.rand(512, 1, generator=generator)
    y = torch.sin((4 + agent) * x)
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(1, config["width"]), torch.nn.Tanh(), torch.nn.Linear(config["width"], 1))
    model, x, y = layers.cuda(), x.cuda(), y.cuda()
    optimiser = torch.optim.Adam(model.parameters(), lr=config["rate"])
    for _ in range(300):
        optimiser.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimiser.step()
    note(agent=agent, begun=begun, ended=time.time(), device=str(next(model.parameters()).device))
    return loss.item()


def greedy(config: dict[str, Any]) -> float:
    """Take six tenths of the GPU's memory, which the process holds until it ends."""
    import torch

    free, total = torch.cuda.mem_get_info()
    held = torch.empty(int(0.6 * total), dtype=torch.uint8, device="cuda")
    note(free=free / total, held=held.numel())
    return float(config["rate"])


def faulty(config: dict[str, Any]) -> float:
    """Fail on the GPU in three ways, after two of which a process can use the GPU no more, and hang there in a fourth."""
    import torch

    rows = torch.arange(8, device="cuda", dtype=torch.float32)
    if config["case"] == "assertion":
        rows[torch.tensor([99], device="cuda")].sum().item()
    if config["case"] == "memory":
        torch.empty(2 * torch.cuda.mem_get_info()[1], dtype=torch.uint8, device="cuda")
    if config["case"] == "crash":
        os.abort()
    if config["case"] == "hang":
        for _ in range(60):
            torch.cuda._sleep(2_000_000_000)  # about a second
            torch.cuda.synchronize()
    return rows.sum().item()


def long(config: dict[str, Any], agent: int) -> float:
    """Hold a gigabyte for two seconds."""
    import torch

    held = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    note(agent=agent, rate=config["rate"])
    time.sleep(2)
    return float(config["rate"]) + 0 * held[0].item()
