package engine

import (
	"crypto/x509"
	"encoding/pem"
)

// certificatesOf returns the certificates of a PEM file. What else is in it is passed over.
func certificatesOf(text []byte) []*x509.Certificate {
	var certificates []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return certificates
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
			certificates = append(certificates, certificate)
		}
	}
}
