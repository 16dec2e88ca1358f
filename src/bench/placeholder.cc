namespace artery {}
