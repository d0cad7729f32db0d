package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Buckets in seconds: pictures take seconds, videos many minutes; what the hub itself does
// takes milliseconds.
var (
	longBuckets  = []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
	shortBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5}
)

// histogram are the options of a histogram that is classic and native at once: Prometheus
// reads the native one if it is told to, and that has a resolution of 10 %.
func histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}
}
