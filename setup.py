"""The compiled part of the package. All else is in pyproject.toml.

Where there is no C compiler, installing goes on without it (`optional`): `holdfast/trace/inner_loops.py` then does the
same in NumPy. The module keeps to Python's stable ABI, so one build serves every Python from 3.11 on.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "holdfast.trace._inner_loops",
            ["src/holdfast/trace/_inner_loops.c"],
            extra_compile_args=["-O3"],
            optional=True,
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
