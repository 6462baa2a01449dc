"""Many proofs on few devices, with a record of where the time went.

  with Engine() as engine:
    result = engine.prove(Job(key, witnesses))
"""
from zkjax.engine.budget import BudgetError, ByteBudget
from zkjax.engine.core import EngineConfig
from zkjax.engine.engine import Engine
from zkjax.engine.jobs import (
    DeadlineError,
    DeviceError,
    EngineClosed,
    EngineError,
    Job,
    JobCancelled,
    JobFuture,
    JobResult,
    RejectedError,
    SynthesisError,
)
from zkjax.engine.timeline import Timeline

__all__ = [
    "BudgetError", "ByteBudget", "DeadlineError", "DeviceError", "Engine", "EngineClosed", "EngineConfig", "EngineError", "Job",
    "JobCancelled", "JobFuture", "JobResult", "RejectedError", "SynthesisError", "Timeline",
]
