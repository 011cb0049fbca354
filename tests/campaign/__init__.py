"""A campaign that tries to break the program on purpose: ``python -m tests.campaign``.

A **kind** of tries, a module of `kinds`, has a `COUNT`, a `plan` that draws a **case** from a seeded generator, and an
`attempt` that carries a case out and returns its **outcomes**. The checks of `outcome` say what is wrong with them. A
case is JSON and whole, so that a failure that was kept replays also after a plan has changed.
"""
