"""Curves through measured points, with 90 % intervals.

`samples`, `knee` and `memory` are pure Python, because the parent process and
`bsprof recommend` use them without loading numpy. Import the modules themselves.
"""
