"""Classes and objects of the JVM, by name.

py4j asks the JVM once for every part of a dotted name, so found objects are cached for as long as the gateway is the
same.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

CATALYST = "org.apache.spark.sql.catalyst"

_found: dict[tuple[int, str], tuple[Any, Any]] = {}
"""(id of the gateway's JVM view, name) → (that view, the object). The view is kept so that no other object gets its
id."""


def jvm_class(session: SparkSession, name: str) -> Any:
    """Return a class: call it to make an object, or take a static member of it."""
    return _kept(session, name, lambda jvm: _walk(jvm, name))


def scala_object(session: SparkSession, name: str) -> Any:
    """Return a Scala object."""
    return _kept(session, f"{name}$", lambda jvm: getattr(_walk(jvm, f"{name}$"), "MODULE$"))


def java_class(session: SparkSession, name: str) -> Any:
    """Return the ``java.lang.Class`` of that name."""
    return _kept(session, f"class {name}", lambda jvm: _walk(jvm, "java.lang.Class").forName(name))


def compiled(session: SparkSession, name: str, source: str, beside: Any = None) -> Any:
    """Compile the ``source`` of the Java class ``name`` in the driver's JVM, with the compiler that Spark has for its
    own generated code. Return an object of it. The source may use the class of the object ``beside``, which was
    compiled before."""

    def compile(jvm: Any) -> Any:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        above = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
        compiler.setParentClassLoader(above if beside is None else beside.getClass().getClassLoader())
        compiler.cook(source)
        gateway: Any = session.sparkContext._gateway
        found = compiler.getClassLoader().loadClass(name)
        nothing = gateway.new_array(jvm.java.lang.Object, 0)
        return found.getConstructor(gateway.new_array(jvm.java.lang.Class, 0)).newInstance(nothing)

    return _kept(session, f"compiled {name}", compile)


def kept(session: SparkSession, name: str, find: Any) -> Any:
    """Return the result of ``find``, which is called once per ``name``."""
    return _kept(session, f"kept {name}", lambda jvm: find())


def _kept(session: SparkSession, name: str, find: Any) -> Any:
    jvm: Any = session.sparkContext._jvm
    key = (id(jvm), name)
    if key not in _found:
        _found[key] = (jvm, find(jvm))
    return _found[key][1]


def _walk(jvm: Any, name: str) -> Any:
    found = jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found
