package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
)

const (
	// ReportsPath is where an agent sends its reports: as one answer that does not end.
	ReportsPath = "/reports"
	// RepeatEvery is how often an agent reports even if nothing has changed.
	RepeatEvery = 3 * time.Second
	// Silence is how long an agent may send nothing before its tunnel is taken for dead.
	Silence = 4 * RepeatEvery
	// maxReport bounds a report in bytes.
	maxReport = 1 << 20
)

// Reports opens the answer with the agent's reports, for [ReadReport]. It ends with the
// tunnel.
func (s *Session) Reports() (io.ReadCloser, error) {
	transport := &http.Transport{DialContext: s.DialContext, DisableCompression: true, DisableKeepAlives: true}
	r, err := http.NewRequest(http.MethodGet, "http://agent"+ReportsPath, nil) //nolint:noctx // it ends with the tunnel
	if err != nil {
		return nil, err
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("tunnel: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("tunnel: the agent answers %s", resp.Status), resp.Body.Close())
	}
	return resp.Body, nil
}

// ErrLeave is read at the end of an agent that stops on purpose.
var ErrLeave = errors.New("the agent leaves")

// WriteReport writes a report, or that the agent leaves if there is none.
func WriteReport(w io.Writer, r *fleet.Report) error {
	var body []byte
	if r != nil {
		body = r.Encode()
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))) // #nosec G115 -- a report is small
	_, err := w.Write(append(frame, body...))
	return err
}

// ReadReport reads what [WriteReport] has written. The errors are [ErrLeave],
// [fleet.ErrReport], after which the next report can be read, or one of the reader.
func ReadReport(r io.Reader) (fleet.Report, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fleet.Report{}, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size == 0 {
		return fleet.Report{}, ErrLeave
	}
	if size > maxReport {
		return fleet.Report{}, fmt.Errorf("tunnel: a report of %d bytes", size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return fleet.Report{}, err
	}
	return fleet.DecodeReport(body)
}
