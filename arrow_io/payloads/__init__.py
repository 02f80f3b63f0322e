"""Payloads: conversion between payload bytes and typed Arrow columns, by Pulsar's schemas."""
