"""Data for demonstrations and experiments: a generator of road traffic, loaders of usual files."""

from dpcore.data.files import load_sensors
from dpcore.data.road import SensorData, traffic

__all__ = ["SensorData", "load_sensors", "traffic"]
