"""Problems from practice that are computed: vaccination campaigns and settings of compressors."""
