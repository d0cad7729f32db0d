package shell

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

// certificateEnds is how long before its end a certificate should have been renewed:
// Caddy does it a month before.
const certificateEnds = 14 * 24 * time.Hour

// finding is what is known of one thing that the fleet depends on.
type finding struct {
	Level string `json:"level"`
	About string `json:"about"`
	Says  string `json:"says"`
	Do    string `json:"do,omitempty"`
}

func checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "check", Short: "Look for what is wrong with the fleet, and say what to do about it",
		Long: `Asks the running hub about its queue, storage, disks and clock, about instances that
take no jobs, and about versions, nodes and models that differ between servers. With
--hub or ` + hubVariable + `, it also looks at that site's certificate.

The exit code is 1 if there is an error. Warnings and notes do not change it.`,
	}
	cmd.Flags().Bool("json", false, "print the findings as JSON")
	return cmd
}

func runCheck(ctx context.Context, a *Admin, l login, cmd *cobra.Command) error {
	var told struct {
		Findings []finding `json:"findings"`
	}
	if err := a.ask(ctx, http.MethodGet, "check", nil, &told); err != nil {
		return err
	}
	all := append([]finding{}, told.Findings...) // as JSON, never null
	if l.named() {
		access, err := l.access()
		if err != nil {
			return err
		}
		all = append(all, checkSite(ctx, access.Hub))
	}
	out := cmd.OutOrStdout()
	if asJSON(cmd) {
		if err := writeJSON(out, all); err != nil {
			return err
		}
	} else {
		for _, f := range all {
			fmt.Fprintf(out, "%-8s %-10s %s\n", printable(f.Level), printable(f.About), printable(f.Says))
			if f.Do != "" {
				fmt.Fprintf(out, "%-8s %-10s -> %s\n", "", "", printable(f.Do))
			}
		}
	}
	for _, f := range all {
		if f.Level == "error" {
			return &coded{ExitFailed, errShown}
		}
	}
	return nil
}

// checkSite looks at how users reach the hub.
func checkSite(ctx context.Context, site string) finding {
	f := finding{Level: "error", About: "site"}
	u, err := url.Parse(site)
	if err != nil {
		f.Says = err.Error()
		return f
	}
	if u.Scheme != "https" {
		f.Level, f.Says = "warning", u.Host+" is without TLS: logins and pictures cross the network unencrypted"
		f.Do = "name the site by a host name, for which Caddy gets a certificate"
		if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
			f.Level, f.Says, f.Do = "ok", u.Host+" is on this machine", ""
		}
		return f
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	conn, err := (&tls.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		f.Says, f.Do = u.Host+": "+err.Error(), "look at Caddy's log, and whether ports 80 and 443 are open for the certificate"
		return f
	}
	defer conn.Close()
	end := conn.(*tls.Conn).ConnectionState().PeerCertificates[0].NotAfter
	f.Level, f.Says = "ok", "the certificate of "+u.Host+" is good until "+end.UTC().Format("2006-01-02")
	// Caddy's own authority makes certificates for half a day.
	if left := time.Until(end); left < certificateEnds && left > 24*time.Hour {
		f.Level, f.Do = "warning", "Caddy renews certificates a month before: its log says why it does not"
	}
	return f
}
