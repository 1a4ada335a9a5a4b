"""Counters that marks depend on, each read outside the student's Python, where the student's code cannot change it.

- CUDA (sectors, requests, conflicts, FLOP, races): the simulator's process, below the examiner, where none of the
  student's Python has run; it compiles the cell's text (``examine.kernels``) under the rules for graded kernels. Plain
  launches, which nothing watches, have a process of their own; in the one that counts, an access that leaves the
  kernel's memory ends the launch before it is made. A forgery would need a source that passes these rules, and an
  access that g++ makes without a hook; unrecorded stores are searched for in the arrays.
- Triton (bytes, findings, races): the tracer's process, likewise. A kernel is a function's text, checked to be ``tl``
  and control flow, run without builtins; the test launches it, on the examiner's arrays. A forgery would need a way out
  of that language.
- Ranks (messages, bytes, order, collectives): ``relay``. Each rank is a sandbox of its own with its own arguments, and
  the examiner is the network: what was not sent cannot arrive. Bytes without content count as bytes. Locks and watches
  of files that all can read carry no information, nor do counts of the machine (``sandbox``).
  Ranks are different users, for whom the kernel counts apart, and neither wait on shared memory nor wake anyone there.
  They make no pipe, socket or memfd, whose numbers count on all the machine.
  A forgery could still pass bits through what a clock shows of the kernel's caches: the first read of a page of the
  system's files takes longer than the next (460 bit/s measured), and so does the first look for a name (100 bit/s);
  and through the load of a processor (18 bit/s on one, under 1 where the kernel places the ranks).
- Peak memory of a call: ``peak``, from 28 MiB beyond the bound (``checks.expect_peak`` allows 16, ballast may hide 12
  more). The measured process can start no other process or program and can make no file, pipe, socket or shared page
  (``sandbox.syscalls``): all that it keeps is in its resident set. A test of a smaller difference would rest on a
  claim. Without root the peak counts from the start of the process, not from the call.
- Views: rebuilt on the examiner's memory (``boundary.arrays``), so that strides must be right. That nothing was copied
  is a claim.
- Work of numpy and torch (``count_work``), element accesses (``trace_accesses``), memory of one rank
  (``run_ranks(memory=True)``): claims. A process that never held the operands could not compute with them uncounted;
  keeping them with the examiner, and sending it the operations, is not built.
"""
