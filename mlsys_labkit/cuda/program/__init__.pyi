from mlsys_labkit.cuda.program.result import Launch as Launch, ProgramResult as ProgramResult
from mlsys_labkit.cuda.program.run import run_program as run_program
