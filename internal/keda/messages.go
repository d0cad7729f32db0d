package keda

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// codec reads and writes the messages of externalscaler.proto that are needed.
type codec struct{}

// Name implements [encoding.Codec]: it is what clients call it.
func (codec) Name() string { return "proto" }

// message can be written.
type message interface{ marshal() []byte }

// request can be read.
type request interface{ unmarshal(b []byte) error }

// Marshal implements [encoding.Codec].
func (codec) Marshal(v any) ([]byte, error) {
	m, ok := v.(message)
	if !ok {
		return nil, fmt.Errorf("keda: %T is no answer", v)
	}
	return m.marshal(), nil
}

// Unmarshal implements [encoding.Codec].
func (codec) Unmarshal(b []byte, v any) error {
	r, ok := v.(request)
	if !ok {
		return fmt.Errorf("keda: %T is no request", v)
	}
	return r.unmarshal(b)
}

var errMessage = errors.New("keda: no message of externalscaler.proto")

// fields calls f for each field whose value is bytes, and skips the others.
func fields(b []byte, f func(number protowire.Number, value []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errMessage
		}
		b = b[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				return errMessage
			}
			b = b[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return errMessage
		}
		if err := f(number, value); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// scaledObject is ScaledObjectRef: whom the number is for. Of its metadata, the trigger's, the class
// is needed.
type scaledObject struct{ class string }

func (s *scaledObject) unmarshal(b []byte) error {
	return fields(b, func(number protowire.Number, entry []byte) error {
		if number != 3 {
			return nil
		}
		var key, value string
		err := fields(entry, func(number protowire.Number, text []byte) error {
			if number == 1 {
				key = string(text)
			}
			if number == 2 {
				value = string(text)
			}
			return nil
		})
		if key == "class" {
			s.class = value
		}
		return err
	})
}

// metricsRequest is GetMetricsRequest.
type metricsRequest struct{ object scaledObject }

func (m *metricsRequest) unmarshal(b []byte) error {
	return fields(b, func(number protowire.Number, value []byte) error {
		if number == 1 {
			return m.object.unmarshal(value)
		}
		return nil
	})
}

// active is IsActiveResponse.
type active bool

func (a active) marshal() []byte {
	if !a {
		return nil
	}
	return protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
}

// metric is GetMetricSpecResponse and GetMetricsResponse, which have the same form: one name, and its
// target or its value.
type metric float64

func (m metric) marshal() []byte {
	one := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), metricName)
	// KEDA before 2.11 reads the whole number.
	one = protowire.AppendVarint(protowire.AppendTag(one, 2, protowire.VarintType), uint64(max(m, 0)))
	one = protowire.AppendFixed64(protowire.AppendTag(one, 3, protowire.Fixed64Type), math.Float64bits(float64(m)))
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), one)
}
