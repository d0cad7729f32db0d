//go:build !linux

package main

import "errors"

func mount(string) error { return errors.ErrUnsupported }

func unmount(string) error { return errors.ErrUnsupported }

func resize(string, int64) error { return errors.ErrUnsupported }

func shrink(string) error { return errors.ErrUnsupported }
