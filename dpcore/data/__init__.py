"""Data for demonstrations and experiments: road traffic, made up or simulated, and usual files."""

from dpcore.data.city import simulate_city
from dpcore.data.files import load_sensors, save_sensors
from dpcore.data.road import SensorData, traffic

__all__ = ["SensorData", "load_sensors", "save_sensors", "simulate_city", "traffic"]
